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
		Short:      "Check whether this host can run pods",
		SuggestFor: []string{"info"},
		Long: `Check whether this host can run pods. Every probe does the real thing: one boots a
guest, another creates a network. A failure means that pods cannot run, and the exit
code is 1. A warning names something that pods have to do without.

With --cri, also check the requirements of bulkhead cri, with the settings of its
configuration file, and the network of its pods. With --node, also check the
requirements of bulkhead node, which needs no kubelet.

The result of the KVM probe is kept until the host reboots. --probe repeats it, for longer.`,
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
			// The command ends only after the processes of its probes.
			ctx, stop := tty.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
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
				return errors.New("pods cannot run here: see the failed lines and their remedies (-->)")
			}
			return nil
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&fresh, "probe", false, "repeat the KVM probe instead of using the result since the last boot")
	cmd.Flags().BoolVar(&forCRI, "cri", false, "also check the requirements of bulkhead cri")
	cmd.Flags().BoolVar(&forNode, "node", false, "also check the requirements of bulkhead node, with CNI's default directories")
	cmd.MarkFlagsMutuallyExclusive("cri", "node")
	cmd.Flags().StringVar(&file, "config", "", "configuration file of bulkhead cri (default "+config.File+", if it exists)")
	return cmd
}

// ownNode returns the defaults of bulkhead node.
func ownNode() *check.CRI {
	var c nodeconfig.Config
	c.Add(pflag.NewFlagSet("node", pflag.ContinueOnError))
	return &check.CRI{CNIConf: c.CNIConf, CNIBin: c.CNIBin}
}

// node returns the settings of bulkhead cri from a configuration file.
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
