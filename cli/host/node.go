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

// Node is the command node. It replaces itself with the node's program.
func Node(a *app.App) *cobra.Command {
	var c config.Config
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run this host as a Kubernetes node (no kubelet needed)",
		Long: `Register this host as a node of a Kubernetes cluster, in the foreground, and run the pods that are
bound to it, each in its own VM. No kubelet and no other runtime is needed.

The kubeconfig must be a node's: user system:node:NAME, group system:nodes. With a bootstrap kubeconfig the node
requests its kubeconfig and certificate (CSR), and renews the certificate. Its pods are separate from the pods of
other commands. They keep running when it ends, and the next bulkhead node takes them over.

With --manifests the node also runs the pods in the files of a directory (static pods). Without a kubeconfig it runs
only these, and needs no API server.

CSI drivers on the host register below --root-dir, as with a kubelet.`,
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
