package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

func completionCmd(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the completion script of a shell",
		Example: `  source <(bulkhead completion bash)
  bulkhead completion zsh > "${fpath[1]}/_bulkhead"
  bulkhead completion fish > ~/.config/fish/completions/bulkhead.fish`,
		Args:      app.Exactly("bash, zsh or fish"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				if err := cmd.Root().GenBashCompletionV2(a.Out, true); err != nil {
					return err
				}
				_, err := io.WriteString(a.Out, bashAlone)
				return err
			case "zsh":
				return cmd.Root().GenZshCompletion(a.Out)
			case "fish":
				return cmd.Root().GenFishCompletion(a.Out, true)
			}
			return fmt.Errorf("no completion for %q: use bash, zsh or fish", args[0])
		},
	}
}

// bashAlone makes the bash script work without the package bash-completion. It splits words at blanks.
const bashAlone = `
__bulkhead_init_completion()
{
    COMPREPLY=()
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    local line=${COMP_LINE:0:COMP_POINT}
    read -r -a words <<<"$line"
    [[ $line == *[[:blank:]] ]] && words+=("")
    cword=$((${#words[@]} - 1))
    cur=${words[cword]}
    prev=${words[cword > 0 ? cword - 1 : 0]}
}
`
