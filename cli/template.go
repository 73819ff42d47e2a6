package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func (a *app) templateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "template", Aliases: []string{"templates"}, Short: "Build, list and remove the saved machines that pods are cloned from",
		Example: "  bulkhead template ls\n  bulkhead template build --vcpus 2",
	}
	cmd.AddCommand(a.templateBuildCmd(), a.templateLsCmd(), a.templateRmCmd())
	return cmd
}

func (a *app) templateBuildCmd() *cobra.Command {
	var req api.TemplateRequest
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build a template unless it is there (pods build what they miss on first use)",
		Example: `  bulkhead template build
  bulkhead template build --vcpus 4 --network none`,
		Args: atMost(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := errors.Join(choice("network", req.Network, "user", "none"), choice("accel", req.Accel, "auto", "kvm", "tcg"))
			if err != nil {
				return err
			}
			var t api.Template
			if err := a.client.Call(cmd.Context(), "POST", "/v1/templates", nil, req, &t); err != nil {
				return err
			}
			fmt.Fprintln(a.out, t.Key)
			return nil
		},
	}
	cmd.Flags().IntVar(&req.VCPUs, "vcpus", 1, "virtual CPUs: 1, 2, 4, 8 …")
	cmd.Flags().StringVar(&req.Network, "network", "user", "network of the machines: user or none")
	cmd.Flags().StringVar(&req.Accel, "accel", "auto", "accelerator: auto, kvm or tcg")
	return cmd
}

func (a *app) templateLsCmd() *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List templates: size, age, key, why each was built", Args: atMost(),
		Example: "  bulkhead template ls -o yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := []api.Template{}
			if err := a.client.Call(cmd.Context(), "GET", "/v1/templates", nil, nil, &list); err != nil {
				return err
			}
			return a.show(cmd.Context(), f, list, views{
				table: func(w io.Writer) error { return templateTable(w, list, short) },
				wide:  func(w io.Writer) error { return templateTable(w, list, func(key string) string { return key }) },
				names: func() []string {
					var keys []string
					for _, t := range list {
						keys = append(keys, t.Key)
					}
					return keys
				},
			})
		},
	}
	f.addList(cmd)
	return cmd
}

func templateTable(w io.Writer, list []api.Template, key func(string) string) error {
	var rows [][]string
	for _, t := range list {
		rows = append(rows, []string{
			key(t.Key), strconv.Itoa(t.VCPUs), fmt.Sprintf("%d MiB", t.Memory),
			t.Network, t.Accel, size(t.Size), age(t.Created), t.Reason,
		})
	}
	return table(w, "KEY VCPUS MEMORY NETWORK ACCEL SIZE AGE REASON", rows)
}

func (a *app) templateRmCmd() *cobra.Command {
	return &cobra.Command{
		Use: "rm KEY…", Short: "Remove templates; running pods keep theirs", Args: atLeast("KEY"),
		Example: "  bulkhead template rm 3f2a",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachPod(args, func(key string) error {
				return a.client.Call(cmd.Context(), "DELETE", "/v1/templates/"+url.PathEscape(key), nil, nil, nil)
			})
		},
	}
}
