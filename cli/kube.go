package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) kubeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "kube", Short: "Write Kubernetes manifests",
		Example: "  bulkhead kube generate web > web.yaml",
	}
	cmd.AddCommand(a.kubeGenerateCmd())
	return cmd
}

func (a *app) kubeGenerateCmd() *cobra.Command {
	f := format("yaml")
	cmd := &cobra.Command{
		Use:   "generate POD…",
		Short: "Write pods as the YAML that makes them",
		Long: `Write pods as the YAML that makes them: what was given to bulkhead run, without what
Bulkhead has set and without defaults.`,
		Example: `  bulkhead kube generate web > web.yaml
  bulkhead kube generate web | kubectl apply -f -`,
		Args: atLeast("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for i, ref := range args {
				var pod map[string]any
				if err := a.client.Call(cmd.Context(), "GET", podPath(ref, "manifest"), nil, nil, &pod); err != nil {
					return err
				}
				if i > 0 && f == "yaml" {
					fmt.Fprintln(a.out, "---")
				}
				if err := a.show(cmd.Context(), f, pod, views{}); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.add(cmd)
	return cmd
}
