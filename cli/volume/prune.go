package volume

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/prune"
)

func pruneCmd(a *app.App) *cobra.Command {
	return prune.Command(a, &cobra.Command{
		Short: "Remove all volumes that no pod uses, with all that is in them",
		Long: `Remove all volumes that no pod uses, ended pods included, with all that is in them. What
a pod of a file would use that is not there is removed too.`,
		Example: `  bulkhead volume prune
  bulkhead volume prune --force`,
	}, prune.Of{Path: "/v1/prune/volumes", Warning: "This removes all volumes that no pod uses, and what is in them."})
}
