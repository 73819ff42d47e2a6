package host

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/prune"
)

// System is the command system.
func System(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "system", Short: "Show and clear up what lies on the disk",
		Example: "  bulkhead system df\n  bulkhead system prune",
	}
	cmd.AddCommand(df(a), systemPrune(a))
	return cmd
}

func systemPrune(a *app.App) *cobra.Command {
	return prune.Command(a, &cobra.Command{
		Short: "Remove ended pods, images that no pod uses, and templates of an earlier guest",
		Long: `Remove pods that have ended, images without a name that no pod uses (with --all every
image that no pod uses), with --volumes the volumes that no pod uses, and templates that
were made with another kernel, guest or QEMU than those of today. --all removes each template
that no running pod was cloned from as well: the next pod of its kind takes longer to start.`,
		Example: `  bulkhead system prune
  bulkhead system prune --all --volumes --force`,
	}, prune.Of{
		Path: "/v1/system/prune", Warning: "This removes ended pods, %s, and templates of an earlier guest.", Images: true, Volumes: true,
	})
}
