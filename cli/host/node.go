package host

import (
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/node/config"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// Node is the command node, which becomes the node's program.
func Node(a *app.App) *cobra.Command {
	var c config.Config
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Be a Kubernetes node without a kubelet",
		Long: `Register this machine as a node of a Kubernetes cluster, in the foreground, and run the pods that are
bound to it, each in a virtual machine of its own. There is no kubelet and no other runtime.

The kubeconfig is a node's, with the user system:node:NAME and the group system:nodes. With a bootstrap kubeconfig
the node asks for it and its certificate (CSR), and renews that. Its pods are not those of
other commands, and outlive it: the next one finds them.

With --manifests the pods in the files of a directory run as well, static pods; without a kubeconfig they are all there is,
and no API server is needed.

CSI drivers that run on the host register with it as with a kubelet, below --root-dir.`,
		Example: `  bulkhead node --kubeconfig /etc/bulkhead/node.conf
  bulkhead node --manifests /etc/bulkhead/manifests
  bulkhead node --kubeconfig node.conf --node-name worker-1 --cluster-dns 10.96.0.10
  bulkhead node --kubeconfig node.conf --bootstrap-kubeconfig bootstrap.conf --rotate-server-certificates
  bulkhead node --kubeconfig node.conf --node-label disk=ssd --register-with-taint vm=only:NoSchedule`,
		Args: app.AtMost(),
		RunE: func(*cobra.Command, []string) error {
			if err := c.Check(); err != nil {
				return fmt.Errorf("node: %w", err)
			}
			program, err := dirs.Sibling("bulkhead-node")
			if err != nil {
				return fmt.Errorf("node: %w", err)
			}
			env := append(os.Environ(), "BULKHEAD_DATA="+a.Roots.Data, "BULKHEAD_STATE="+a.Roots.State)
			return fmt.Errorf("node: run %s: %w", program, syscall.Exec(program, append([]string{program}, c.Args()...), env))
		},
	}
	c.Add(cmd.Flags())
	return cmd
}
