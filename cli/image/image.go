// Package image has the commands for images and registries.
package image

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// Command is the command image.
func Command(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Aliases: []string{"images"}, Short: "Pull, load, list, tag, save, inspect and remove images",
		Example: `  bulkhead image pull registry.example.org/app:1.2
  bulkhead image load app.tar localhost/app:dev
  bulkhead image ls`,
	}
	cmd.AddCommand(pull(a), load(a), save(a), ls(a), tag(a), inspect(a), rm(a), pruneCmd(a))
	return cmd
}
