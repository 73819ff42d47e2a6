package image

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/prune"
)

func pruneCmd(a *app.App) *cobra.Command {
	return prune.Command(a, &cobra.Command{
		Short: "Remove unused images",
		Long: `Remove images without a name that no pod uses, not even an ended one. With --all, remove
every image that no pod uses.`,
		Example: `  bulkhead image prune
  bulkhead image prune --all --force`,
	}, prune.Of{Path: "/v1/images/prune", Warning: "This removes %s.", Images: true})
}
