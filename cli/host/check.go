// Package host has the commands about this host: check, version, reap and system.
package host

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkhead-project/bulkhead/check"
	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/cri/config"
	nodeconfig "github.com/bulkhead-project/bulkhead/door/node/config"
)

// Check is the command check.
func Check(a *app.App) *cobra.Command {
	var f output.Format
	var fresh, forCRI, forNode bool
	var file string
	cmd := &cobra.Command{
		Use:        "check",
		Short:      "Find out what this machine can do for pods, and what would help",
		SuggestFor: []string{"info"},
		Long: `Find out what this machine can do for pods. Every line is tried, not assumed: a
guest is really booted, a network really made. A warning says what pods have to
do without; pods cannot run only where a line fails, and the exit code is then 1.

With --cri it is about a node as well: what bulkhead cri needs with the settings of
its configuration file, and the network that it gives to pods. With --node it is about
what bulkhead node needs, which has no kubelet.

Whether KVM works is remembered until the host's next boot; --probe tries again, for longer.`,
		Example: `  bulkhead check
  bulkhead check --probe
  sudo bulkhead check --cri
  sudo bulkhead check --node
  bulkhead check -o json | jq -r '.[] | select(.status != "ok") | .remedy'`,
		Args: app.AtMost(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.Valid(); err != nil {
				return err
			}
			o := check.Options{Roots: a.Roots, Fresh: fresh}
			if forCRI {
				var err error
				if o.CRI, err = node(file); err != nil {
					return fmt.Errorf("check: %w", err)
				}
			}
			if forNode {
				o.CRI = ownNode()
			}
			// What a probe has started ends before the command does.
			ctx, stop := tty.Catch(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			probes := check.Probes(o)
			t := newFindings(a.Out, probes)
			found := []check.Finding{}
			able, err := check.Run(ctx, probes, func(one check.Finding) {
				found = append(found, one)
				if f == "" {
					t.print(one, a.Detail)
				}
			})
			if errors.As(err, new(tty.SignalError)) {
				return app.SignalExit(ctx)
			}
			if err != nil {
				return fmt.Errorf("check: %w", err)
			}
			if f != "" {
				if err := a.Show(cmd.Context(), f, found, output.Views{}); err != nil {
					return err
				}
			}
			if !able {
				return errors.New("pods cannot run here: see what fails, and its remedy (-->)")
			}
			return nil
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&fresh, "probe", false, "probe KVM again instead of believing what was found since the host's last boot")
	cmd.Flags().BoolVar(&forCRI, "cri", false, "find out what bulkhead cri needs on a node as well")
	cmd.Flags().BoolVar(&forNode, "node", false, "find out what bulkhead node needs as well, with CNI's usual directories")
	cmd.MarkFlagsMutuallyExclusive("cri", "node")
	cmd.Flags().StringVar(&file, "config", "", "configuration file of bulkhead cri (default "+config.File+", if it is there)")
	return cmd
}

// ownNode is what bulkhead node has unless it is told otherwise.
func ownNode() *check.CRI {
	var c nodeconfig.Config
	c.Add(pflag.NewFlagSet("node", pflag.ContinueOnError))
	return &check.CRI{CNIConf: c.CNIConf, CNIBin: c.CNIBin}
}

// node is what bulkhead cri is told by a file.
func node(file string) (*check.CRI, error) {
	var c config.Config
	f := pflag.NewFlagSet("cri", pflag.ContinueOnError)
	c.Add(f)
	if err := c.Load(file, f); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	n := &check.CRI{Socket: c.Socket(), Kubelet: c.Kubelet}
	if c.Network == config.CNI {
		n.CNIConf, n.CNIBin = c.CNIConf, c.CNIBin
	}
	return n, nil
}
