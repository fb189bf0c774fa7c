# Ordinary users who may not make namespaces.
# shellcheck shell=bash disable=SC2154,SC2016

try_namespaces() {
    guest 'sysctl -q kernel.unprivileged_userns_clone=0'
    is "Debian forbids them: host-lab says which setting" 'guest_user "host-lab up 1" >said.txt 2>&1; [ $? = 69 ] && grep -q "kernel.unprivileged_userns_clone=1" said.txt' said.txt
    guest 'sysctl -q kernel.unprivileged_userns_clone=1 user.max_user_namespaces=0'
    is "there may be none: it says which setting" 'guest_user "host-lab up 1" >said.txt 2>&1; [ $? = 69 ] && grep -q "user.max_user_namespaces=" said.txt' said.txt
    guest 'sysctl -q user.max_user_namespaces=10000'
    is "with both, hosts start" 'guest_user "host-lab up 2 --quiet && host-lab exec 1 ssh h2 hostname; host-lab down" >said.txt 2>&1; grep -qx h2 said.txt' said.txt
}
