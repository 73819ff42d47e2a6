package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
)

func (a *app) completionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Write the completion of a shell, with the names of pods, containers and images",
		Example: `  source <(bulkhead completion bash)
  bulkhead completion zsh > "${fpath[1]}/_bulkhead"
  bulkhead completion fish > ~/.config/fish/completions/bulkhead.fish`,
		Args:      exactly("bash, zsh or fish"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				if err := cmd.Root().GenBashCompletionV2(a.out, true); err != nil {
					return err
				}
				_, err := io.WriteString(a.out, bashAlone)
				return err
			case "zsh":
				return cmd.Root().GenZshCompletion(a.out)
			case "fish":
				return cmd.Root().GenFishCompletion(a.out, true)
			}
			return fmt.Errorf("no completion for %q: use bash, zsh or fish", args[0])
		},
	}
}

// bashAlone makes bash's script work without the package bash-completion, too: words
// are then what blanks part.
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

// completionWait bounds what a press of the tab key may take.
const completionWait = 2 * time.Second

// ask asks an engine that runs; none is started for a completion.
func (a *app) ask(path string, out any) bool {
	ctx, cancel := context.WithTimeout(context.Background(), completionWait)
	defer cancel()
	return client.New(a.roots, nil).Call(ctx, "GET", path, nil, nil, out) == nil
}

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completePods completes arguments that name pods: the first most of them.
func (a *app) completePods(most int) completer {
	return func(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		var pods []api.Pod
		if most > 0 && len(given) >= most || !a.ask("/v1/pods", &pods) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, p := range pods {
			name := p.Name
			if p.Namespace != "default" {
				name = p.Namespace + "/" + p.Name
			}
			names = append(names, name+"\t"+p.Status)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeContainers completes the container of the pod that is named.
func (a *app) completeContainers(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	var pod struct {
		Spec struct {
			InitContainers, Containers, EphemeralContainers []struct{ Name string }
		}
	}
	if len(given) == 0 || !a.ask(podPath(given[0], ""), &pod) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, list := range [][]struct{ Name string }{pod.Spec.Containers, pod.Spec.InitContainers, pod.Spec.EphemeralContainers} {
		for _, c := range list {
			names = append(names, c.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeImages completes names of images that are here.
func (a *app) completeImages(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var images []api.Image
	if !a.ask("/v1/images", &images) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, i := range images {
		names = append(names, i.Names...)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeTemplates completes templates' keys.
func (a *app) completeTemplates(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var list []api.Template
	if !a.ask("/v1/templates", &list) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var keys []string
	for _, t := range list {
		keys = append(keys, short(t.Key))
	}
	return keys, cobra.ShellCompDirectiveNoFileComp
}

// completeCopy completes pods, with the colon that a path follows, and files.
func (a *app) completeCopy(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 1 || strings.ContainsAny(typed, ":/.") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	pods, _ := a.completePods(0)(cmd, nil, typed)
	for i, p := range pods {
		name, _, _ := strings.Cut(p, "\t")
		pods[i] = name + ":"
	}
	return pods, cobra.ShellCompDirectiveNoSpace
}

// complete gives each command what its arguments and flags are completed with,
// by what its usage calls them.
func (a *app) complete(cmd *cobra.Command) {
	_, args, _ := strings.Cut(cmd.Use, " ")
	switch {
	case cmd.ValidArgs != nil || cmd.ValidArgsFunction != nil:
	case cmd.Name() == "cp":
		cmd.ValidArgsFunction = a.completeCopy
	case strings.HasPrefix(args, "POD…"), strings.HasPrefix(args, "[POD…"):
		cmd.ValidArgsFunction = a.completePods(0)
	case strings.HasPrefix(args, "POD"), strings.HasPrefix(args, "[POD"):
		cmd.ValidArgsFunction = a.completePods(1)
	case strings.HasPrefix(args, "IMAGE"):
		cmd.ValidArgsFunction = a.completeImages
	case strings.HasPrefix(args, "KEY"):
		cmd.ValidArgsFunction = a.completeTemplates
	case args == "" && !cmd.HasSubCommands():
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for flag, with := range map[string]completer{
		"container": a.completeContainers,
		"output":    cobra.FixedCompletions([]string{"json", "yaml", "wide", "name", jsonPath}, cobra.ShellCompDirectiveNoFileComp),
		"network":   cobra.FixedCompletions([]string{"user", "none"}, cobra.ShellCompDirectiveNoFileComp),
		"accel":     cobra.FixedCompletions([]string{"auto", "kvm", "tcg"}, cobra.ShellCompDirectiveNoFileComp),
		"template":  cobra.FixedCompletions([]string{"on", "off"}, cobra.ShellCompDirectiveNoFileComp),
		"sort":      cobra.FixedCompletions([]string{"cpu", "memory", "name"}, cobra.ShellCompDirectiveNoFileComp),
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, with) // fails for a flag that is not there, or registered
		}
	}
	for _, sub := range cmd.Commands() {
		a.complete(sub)
	}
}
