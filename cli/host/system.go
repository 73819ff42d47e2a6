package host

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/prune"
)

// System is the command system.
func System(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "system", Short: "Show disk usage and free disk space",
		Example: "  bulkhead system df\n  bulkhead system prune",
	}
	cmd.AddCommand(df(a), systemPrune(a))
	return cmd
}

func systemPrune(a *app.App) *cobra.Command {
	return prune.Command(a, &cobra.Command{
		Short: "Remove ended pods, unused images and outdated templates",
		Long: `Remove pods that have ended, images without a name that no pod uses, and templates that
were built with another kernel, guest or QEMU than the current one. --all also removes
images with a name that no pod uses, and templates that no running pod was cloned from:
the next pod of such a kind takes longer to start. --volumes also removes the volumes
that no pod uses.`,
		Example: `  bulkhead system prune
  bulkhead system prune --all --volumes --force`,
	}, prune.Of{
		Path: "/v1/system/prune", Warning: "This removes ended pods, %s, and outdated templates.", Images: true, Volumes: true,
	})
}
