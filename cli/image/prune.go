package image

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/prune"
)

func pruneCmd(a *app.App) *cobra.Command {
	return prune.Command(a, &cobra.Command{
		Short: "Remove images that no pod uses and nobody named",
		Long: `Remove images that no pod uses, ended pods included: those without a name, or with
--all every one.`,
		Example: `  bulkhead image prune
  bulkhead image prune --all --force`,
	}, prune.Of{Path: "/v1/images/prune", Warning: "This removes %s.", Images: true})
}
