package template

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func build(a *app.App) *cobra.Command {
	var req api.TemplateRequest
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build a template unless it exists (pods build missing ones on first use)",
		Example: `  bulkhead template build
  bulkhead template build --vcpus 4 --network none`,
		Args: app.AtMost(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := errors.Join(app.Choice("network", req.Network, "user", "none"), app.Choice("accel", req.Accel, "auto", "kvm", "tcg"))
			if err != nil {
				return err
			}
			var t api.Template
			if err := a.Client.Call(cmd.Context(), "POST", "/v1/templates", nil, req, &t); err != nil {
				return err
			}
			fmt.Fprintln(a.Out, t.Key)
			return nil
		},
	}
	cmd.Flags().IntVar(&req.VCPUs, "vcpus", 1, "virtual CPUs: 1, 2, 4, 8 …")
	cmd.Flags().StringVar(&req.Network, "network", "user", "network of the VMs: user or none")
	cmd.Flags().StringVar(&req.Accel, "accel", "auto", "accelerator: auto, kvm or tcg")
	return cmd
}
