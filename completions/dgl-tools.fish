# Completes the flags of a tool in fish, and the values of those that have a few, as the tool's own --help shows them.
# Installed under the name of each tool.
function __dgl_tools
    set -l words (commandline -opc)
    set -l flag (string replace -ra '[^a-z_-]' '' -- $words[-1])
    set -l help ($words[1] --help 2>/dev/null)
    if string match -q -- '-*' (commandline -ct)
        string replace -rf '^  (?:    |-., )(--[a-z_-]+)(?:\[=<[^>]*>\]| <[^>]*>| \S+)?(?: {2,}(.*))?$' '$1\t$2' -- $help
    else
        string replace -rf -- "^  (?:    |-., )$flag <([a-z_|-]+\|[a-z_|-]+)>.*" '$1' $help | string split '|'
        or __fish_complete_path (commandline -ct)
    end
end
complete -c (string replace -rf '.*/(.*)\.fish$' '$1' (status filename)) -f -a '(__dgl_tools)'
