// Package image has the commands for images and registries.
package image

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// Command is the command image.
func Command(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Pull, load, list, tag, save, inspect and remove images",
		Example: `  bulkhead image pull registry.example.org/app:1.2
  bulkhead image load app.tar localhost/app:dev
  bulkhead image ls`,
	}
	cmd.AddCommand(pull(a), load(a), save(a), ls(a), tag(a), inspect(a), history(a), rm(a), pruneCmd(a))
	return cmd
}

// PodmanAliases returns image commands without the word "image", as podman users type them.
func PodmanAliases(a *app.App) []*cobra.Command {
	var all []*cobra.Command
	for _, one := range []struct {
		cmd *cobra.Command
		use string
	}{{pull(a), ""}, {load(a), ""}, {ls(a), "images"}, {rm(a), "rmi IMAGE…"}} {
		was := "bulkhead image " + one.cmd.Name()
		one.cmd.Short = "Same as " + was + ": " + strings.ToLower(one.cmd.Short[:1]) + one.cmd.Short[1:]
		if one.use != "" {
			one.cmd.Use, one.cmd.Aliases = one.use, nil
		}
		one.cmd.Example = strings.ReplaceAll(one.cmd.Example, was, "bulkhead "+one.cmd.Name())
		all = append(all, one.cmd)
	}
	return all
}
