#!/usr/bin/perl
# A rank without any Python, which goes through trials; see trial.py. Its ranks are connected each
# to each.
#
# Usage: ring.pl RANK ADDRESS...    the addresses of all ranks

use strict;
use warnings;
use Socket;
use Time::HiRes qw(sleep);

my ($rank, @addresses) = @ARGV;
my ($size, $folder) = (scalar @addresses, $ENV{TRIALS});
my %outside = map { $_ => 1 } qw(none cut lossy);
my @peers;

# What this rank does before it passes on what it has received.
my $before_passing_on;

sub wait_for { my ($name) = @_; sleep 0.02 until -e "$folder/$name" }

sub put {
    my ($name, $text) = @_;
    open my $file, ">", "$folder/$name.$$" or die $!;
    print $file $text // "";
    close $file;
    rename "$folder/$name.$$", "$folder/$name" or die $!;
}

sub tell_peer {
    my ($peer, $count) = @_;
    my ($text, $done) = ("x" x $count, 0);
    while ($done < $count) { $done += syswrite($peers[$peer], $text, $count - $done) // die "rank $peer: $!" }
}

sub hear {
    my ($peer, $count) = @_;
    while ($count > 0) {
        my $read = sysread($peers[$peer], my $text, $count) || die "rank $peer: no data";
        $count -= $read;
    }
}

sub connect_all {
    socket my $listener, PF_INET, SOCK_STREAM, 0 or die $!;
    setsockopt $listener, SOL_SOCKET, SO_REUSEADDR, 1;
    bind $listener, sockaddr_in(7000 + $rank, inet_aton($addresses[$rank])) or die $!;
    listen $listener, $size;
    put("listens-$rank");
    for my $peer (0 .. $rank - 1) {
        wait_for("listens-$peer");
        socket $peers[$peer], PF_INET, SOCK_STREAM, 0 or die $!;
        connect $peers[$peer], sockaddr_in(7000 + $peer, inet_aton($addresses[$peer])) or die $!;
        setsockopt $peers[$peer], Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1;
        syswrite $peers[$peer], chr $rank;
    }
    for ($rank + 1 .. $size - 1) {
        accept my $socket, $listener or die $!;
        setsockopt $socket, Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1;
        sysread $socket, my $number, 1;
        $peers[ord $number] = $socket;
    }
}

sub pass_on {
    $before_passing_on->() if $before_passing_on;
    undef $before_passing_on;
}

# Does the operation once.
sub repeat {
    my ($operation, $count) = @_;
    my ($next, $previous) = (($rank + 1) % $size, ($rank - 1) % $size);
    if ($operation eq "ring") {
        # not all write first: what is too large for the buffers would wait for ever
        tell_peer($next, $count) if $rank % 2 == 0;
        hear($previous, $count);
        tell_peer($next, $count) if $rank % 2;
    } elsif ($operation eq "relay") {
        # data goes round in one direction, and one rank at a time has it
        hear($previous, $count) if $rank > 0;
        pass_on();
        tell_peer($next, $count);
        hear($previous, $count) if $rank == 0;
    } elsif ($operation eq "hub") {
        if ($rank == 0) {
            tell_peer($_, $count) for 1 .. $size - 1;
            hear($_, $count) for 1 .. $size - 1;
        } else {
            hear(0, $count);
            tell_peer(0, $count);
        }
    } elsif ($operation eq "exchange") {
        for my $peer (0 .. $size - 1) {
            next if $peer == $rank;
            tell_peer($peer, $count) if $rank < $peer;
            hear($peer, $count);
            tell_peer($peer, $count) if $rank > $peer;
        }
    } elsif ($operation eq "stream") {
        hear($rank - 1, $count) if $rank > 0;
        pass_on();
        tell_peer($rank + 1, $count) if $rank + 1 < $size;
    } else {
        die "no operation $operation";
    }
}

sub go_wrong {
    my ($fault, $number) = @_;
    put("faulty-$number", $$) if $rank == 0 || $fault !~ /^all_/;
    if ($fault =~ /sleep$/) {
        wait_for("release-$number");
    } elsif ($fault =~ /spin$|evaluate$/) {
        1 until -e "$folder/release-$number";
    } elsif ($fault eq "stop") {
        kill "STOP", $$;
    } elsif ($fault eq "leave") {
        exit;
    } else {
        die "no fault $fault";
    }
}

connect_all();
put("ready-$rank");
for (my $number = 0; ; $number++) {
    wait_for("trial-$number");
    open my $file, "<", "$folder/trial-$number" or die $!;
    my ($operation, $fault, $faulty, $elements, $steps, $step_s) = split " ", <$file>;
    last if $operation eq "end";
    my $is_faulty = !$outside{$fault} && ($faulty == $rank || $faulty == -1);
    for my $step (0 .. $steps + 19) {
        sleep $step_s * (0.8 + 0.4 * (($rank * 7 + $step * 3) % 10) / 10);
        put("faulty-$number") if $step == 0 && $outside{$fault} && $rank == 0;
        my $is_last = $step + 1 == $steps && $is_faulty;
        if ($is_last && $fault eq "other") {
            put("faulty-$number", $$);
            repeat($operation eq "hub" ? "ring" : "hub", $elements);
        } else {
            if ($is_last && $fault eq "keep") {
                $before_passing_on = sub { go_wrong("sleep", $number) };
            } elsif ($is_last) {
                go_wrong($fault, $number);
            }
            repeat($operation, $elements);
        }
    }
    # where data goes one way only, the first ranks may have done theirs long before the last
    repeat("exchange", 1);
    put("done-$number-$rank");
}
