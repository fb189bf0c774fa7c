# Completes the flags of all dgl-tools in bash, and the values of those that have a few, as the tool's own --help shows them.
_dgl_tools() {
  local help word=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD - 1]//[!a-z_-]/}
  help=$("$1" --help 2>/dev/null) || return
  case $word in
    -*) help=$(sed -nE 's/^  (    |-., )(--[a-z_-]+).*/\2/p' <<<"$help") ;;
    *) help=$(sed -nE "s/^  (    |-., )$flag <([a-z_|-]+\|[a-z_|-]+)>.*/\2/p" <<<"$help" | tr '|' '\n') ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$help" -- "$word")
}
complete -o default -F _dgl_tools ipconf-check part-map part-push dgl-env dgl-spawn host-probe host-swap dgl-stacks dgl-reap part-pull dgl-why dgl-report dgl-copy dgl-launch gs-copy gs-launch host-lab
