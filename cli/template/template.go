// Package template has the commands for the saved VMs that pods are cloned from.
package template

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// Command is the command template.
func Command(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "template", Aliases: []string{"templates"}, Short: "Build, list and remove the saved VMs that pods are cloned from",
		Example: "  bulkhead template ls\n  bulkhead template build --vcpus 2",
	}
	cmd.AddCommand(build(a), ls(a), rm(a))
	return cmd
}
