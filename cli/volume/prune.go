package volume

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/prune"
)

func pruneCmd(a *app.App) *cobra.Command {
	return prune.Command(a, &cobra.Command{
		Short: "Remove all volumes that no pod uses, with their contents",
		Long: `Remove all volumes that no pod uses, not even an ended one, with their contents. A volume
is removed even if a pod in a file names it, unless that pod exists.`,
		Example: `  bulkhead volume prune
  bulkhead volume prune --force`,
	}, prune.Of{Path: "/v1/prune/volumes", Warning: "This removes all volumes that no pod uses, with their contents."})
}
