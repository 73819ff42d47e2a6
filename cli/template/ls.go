package template

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

func ls(a *app.App) *cobra.Command {
	var f output.Format
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List templates, with the reason for each build", Args: app.AtMost(),
		Example: "  bulkhead template ls -o yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := []api.Template{}
			if err := a.Client.Call(cmd.Context(), "GET", "/v1/templates", nil, nil, &list); err != nil {
				return err
			}
			return a.Show(cmd.Context(), f, list, output.Views{
				Table: func(w io.Writer) error { return table(w, list, shortid.Of) },
				Wide:  func(w io.Writer) error { return table(w, list, func(key string) string { return key }) },
				Names: func() []string {
					var keys []string
					for _, t := range list {
						keys = append(keys, t.Key)
					}
					return keys
				},
			})
		},
	}
	f.AddList(cmd)
	return cmd
}

func table(w io.Writer, list []api.Template, key func(string) string) error {
	var rows [][]string
	for _, t := range list {
		rows = append(rows, []string{
			key(t.Key), strconv.Itoa(t.VCPUs), fmt.Sprintf("%d MiB", t.Memory),
			t.Network, t.Accel, text.Size(t.Size), text.Age(t.Created), t.Reason,
		})
	}
	return output.Table(w, "KEY VCPUS MEMORY NETWORK ACCEL SIZE AGE REASON", rows)
}
