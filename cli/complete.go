package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

// completionWait bounds how long one press of the tab key may take.
const completionWait = 2 * time.Second

// ask sends a request to a running engine. It starts none for a completion.
func (a asker) ask(path string, out any) bool {
	ctx, cancel := context.WithTimeout(context.Background(), completionWait)
	defer cancel()
	return client.New(a.Roots, nil).Call(ctx, "GET", path, nil, nil, out) == nil
}

// asker completes typed words by asking the engine.
type asker struct{ *app.App }

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completePods completes the first most arguments with names of pods; 0 means all arguments.
func (a asker) completePods(most int) completer {
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

// completeContainers completes the names of containers of the named pod.
func (a asker) completeContainers(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	var pod struct {
		Spec struct {
			InitContainers, Containers, EphemeralContainers []struct{ Name string }
		}
	}
	if len(given) == 0 || !a.ask(a.PodPath(given[0], ""), &pod) {
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

// completeImages completes the names of local images.
func (a asker) completeImages(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
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

// completeVolumes completes the first most arguments with names of volumes; 0 means all arguments.
func (a asker) completeVolumes(most int) completer {
	return func(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		var list []api.Volume
		if most > 0 && len(given) >= most || !a.ask("/v1/volumes", &list) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, v := range list {
			names = append(names, v.Name+"\t"+v.Kind)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTemplates completes the keys of templates.
func (a asker) completeTemplates(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var list []api.Template
	if !a.ask("/v1/templates", &list) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var keys []string
	for _, t := range list {
		keys = append(keys, shortid.Of(t.Key))
	}
	return keys, cobra.ShellCompDirectiveNoFileComp
}

// completeCopy completes pods, followed by the colon of POD:PATH, and files.
func (a asker) completeCopy(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
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

// complete sets the completion of arguments and flags for cmd and its subcommands, by the words in their usage
// lines.
func (a asker) complete(cmd *cobra.Command) {
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
	case strings.HasPrefix(args, "VOLUME…"):
		cmd.ValidArgsFunction = a.completeVolumes(0)
	case strings.HasPrefix(args, "VOLUME"):
		cmd.ValidArgsFunction = a.completeVolumes(1)
	case strings.HasPrefix(args, "KEY"):
		cmd.ValidArgsFunction = a.completeTemplates
	case args == "" && !cmd.HasSubCommands():
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for flag, with := range map[string]completer{
		"container": a.completeContainers,
		"target":    a.completeContainers,
		"pull":      cobra.FixedCompletions([]string{"missing", "always", "never"}, cobra.ShellCompDirectiveNoFileComp),
		"output":    cobra.FixedCompletions([]string{"json", "yaml", "wide", "name", output.JSONPath}, cobra.ShellCompDirectiveNoFileComp),
		"network":   cobra.FixedCompletions([]string{"user", "none"}, cobra.ShellCompDirectiveNoFileComp),
		"accel":     cobra.FixedCompletions([]string{"auto", "kvm", "tcg"}, cobra.ShellCompDirectiveNoFileComp),
		"template":  cobra.FixedCompletions([]string{"on", "off"}, cobra.ShellCompDirectiveNoFileComp),
		"warm":      cobra.FixedCompletions([]string{"on", "off"}, cobra.ShellCompDirectiveNoFileComp),
		"sort":      cobra.FixedCompletions([]string{"cpu", "memory", "name"}, cobra.ShellCompDirectiveNoFileComp),
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, with) // fails for a flag that does not exist or is registered already
		}
	}
	for _, sub := range cmd.Commands() {
		a.complete(sub)
	}
}
