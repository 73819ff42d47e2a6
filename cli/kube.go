package cli

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
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
	var secrets bool
	cmd := &cobra.Command{
		Use:   "generate POD…",
		Short: "Write pods as the YAML that makes them",
		Long: `Write pods as the YAML that makes them: what was given to bulkhead run, without what
Bulkhead has set and without defaults; ConfigMaps that came with it, too. Secrets are
left out, and named, unless --secrets is given.`,
		Example: `  bulkhead kube generate web > web.yaml
  bulkhead kube generate web | kubectl apply -f -`,
		Args: atLeast("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var documents []map[string]any
			q := url.Values{"secrets": {strconv.FormatBool(secrets)}}
			for _, ref := range args {
				var m api.Manifests
				if err := a.client.Call(cmd.Context(), "GET", podPath(ref, "manifest"), q, nil, &m); err != nil {
					return err
				}
				for _, d := range m.Documents { // pods of one run share their objects
					if !slices.ContainsFunc(documents, func(o map[string]any) bool { return reflect.DeepEqual(o, d) }) {
						documents = append(documents, d)
					}
				}
				for _, name := range m.Secrets {
					fmt.Fprintf(a.err, "bulkhead: the Secret %s of pod %s is left out: give --secrets for it, too\n", name, ref)
				}
			}
			if len(documents) > 1 && f != "yaml" {
				list := map[string]any{"apiVersion": "v1", "kind": "List", "items": documents}
				return a.show(cmd.Context(), f, list, views{})
			}
			for i, d := range documents {
				if i > 0 {
					fmt.Fprintln(a.out, "---")
				}
				if err := a.show(cmd.Context(), f, d, views{}); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&secrets, "secrets", false, "write Secrets, too")
	return cmd
}
