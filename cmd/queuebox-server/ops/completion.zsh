#compdef queuebox-server
# Completion of queuebox-server for zsh.
_queuebox_server() {
    local -a candidates
    local value help
    while IFS=$'\t' read -r value help; do
        value=${value//:/\\:}
        candidates+=("$value:$help")
    done < <("${(e)words[1]/#\~/$HOME}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#candidates )); then
        _describe 'queuebox-server' candidates
    else
        _files
    fi
}
# The file is either read by source or found in fpath under the name _queuebox-server.
if [ "${funcstack[1]}" = "_queuebox-server" ]; then
    _queuebox_server "$@"
else
    compdef _queuebox_server queuebox-server
fi
