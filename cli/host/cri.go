package host

import (
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/cri/config"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// CRI is the command cri. It replaces itself with the engine's program.
func CRI(a *app.App) *cobra.Command {
	var c config.Config
	var file string
	cmd := &cobra.Command{
		Use:   "cri",
		Short: "Serve the Container Runtime Interface (CRI) for a kubelet or crictl",
		Long: `Serve the Container Runtime Interface on a unix socket, in the foreground, for a
kubelet, crictl and other clients. Each pod sandbox is a VM.

Its pods are separate from the pods of other commands. They keep running when it ends,
and the next bulkhead cri takes them over.

Every flag except --config is also a key of the configuration file, in TOML. Flags win.`,
		Example: `  bulkhead cri
  bulkhead cri --config /etc/bulkhead/other.toml --log-level debug
  bulkhead cri --listen unix:///tmp/cri.sock --kubelet-root /var/lib/kubelet
  crictl --runtime-endpoint unix:///run/bulkhead/cri.sock pods`,
		Args: app.AtMost(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Load(file, cmd.Flags()); err != nil {
				return fmt.Errorf("cri: %w", err)
			}
			if err := c.Check(); err != nil {
				return fmt.Errorf("cri: %w", err)
			}
			engine, err := dirs.Sibling("bulkhead-engine")
			if err != nil {
				return fmt.Errorf("cri: %w", err)
			}
			env := append(os.Environ(), "BULKHEAD_DATA="+a.Roots.Data, "BULKHEAD_STATE="+a.Roots.State)
			return fmt.Errorf("cri: run %s: %w", engine, syscall.Exec(engine, append([]string{engine, "cri"}, c.Args()...), env))
		},
	}
	c.Add(cmd.Flags())
	cmd.Flags().StringVar(&file, "config", "", "configuration file (default "+config.File+", if it exists)")
	return cmd
}
