# Completion of queuebox-server for bash.
_queuebox_server() {
    local candidate
    COMPREPLY=()
    while IFS=$'\t' read -r candidate _; do
        COMPREPLY+=("$(printf '%q' "$candidate")")
    done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
# Where there is no candidate bash completes the names of files.
complete -o default -F _queuebox_server queuebox-server
