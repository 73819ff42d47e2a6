package pod

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Kube is the command kube.
func Kube(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "kube", Short: "Generate Kubernetes manifests",
		Example: "  bulkhead kube generate web > web.yaml",
	}
	cmd.AddCommand(generate(a))
	return cmd
}

func generate(a *app.App) *cobra.Command {
	f := output.Format("yaml")
	var secrets bool
	cmd := &cobra.Command{
		Use:   "generate POD…",
		Short: "Generate the YAML of pods",
		Long: `Generate the YAML of pods, as it was given to bulkhead run: without the fields that
Bulkhead has set, without defaults, and with the ConfigMaps that came with the pods.
Secrets are left out, and the command names them, unless --secrets is given.`,
		Example: `  bulkhead kube generate web > web.yaml
  bulkhead kube generate web | kubectl apply -f -`,
		Args: app.AtLeast("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var documents []map[string]any
			q := url.Values{"secrets": {strconv.FormatBool(secrets)}}
			for _, ref := range args {
				var m api.Manifests
				if err := a.Client.Call(cmd.Context(), "GET", a.PodPath(ref, "manifest"), q, nil, &m); err != nil {
					return err
				}
				for _, d := range m.Documents { // pods of one run share their ConfigMaps and Secrets
					if !slices.ContainsFunc(documents, func(o map[string]any) bool { return reflect.DeepEqual(o, d) }) {
						documents = append(documents, d)
					}
				}
				for _, name := range m.Secrets {
					fmt.Fprintf(a.Err, "bulkhead: left out the Secret %s of pod %s: use --secrets to include it\n", name, ref)
				}
			}
			if len(documents) > 1 && f != "yaml" {
				list := map[string]any{"apiVersion": "v1", "kind": "List", "items": documents}
				return a.Show(cmd.Context(), f, list, output.Views{})
			}
			for i, d := range documents {
				if i > 0 {
					fmt.Fprintln(a.Out, "---")
				}
				if err := a.Show(cmd.Context(), f, d, output.Views{}); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&secrets, "secrets", false, "also write Secrets")
	return cmd
}
