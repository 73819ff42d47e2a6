package volume

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func ls(a *app.App) *cobra.Command {
	var f output.Format
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List volumes and the pods that use them", Args: app.AtMost(),
		Example: "  bulkhead volume ls\n  bulkhead volume ls -o wide",
		RunE: func(cmd *cobra.Command, _ []string) error {
			volumes := []api.Volume{}
			if err := a.Client.Call(cmd.Context(), "GET", "/v1/volumes", nil, nil, &volumes); err != nil {
				return err
			}
			return a.Show(cmd.Context(), f, volumes, output.Views{
				Table: func(w io.Writer) error { return table(w, volumes, false) },
				Wide:  func(w io.Writer) error { return table(w, volumes, true) },
				Names: func() (names []string) {
					for _, v := range volumes {
						names = append(names, v.Name)
					}
					return names
				},
			})
		},
	}
	f.AddList(cmd)
	return cmd
}

func table(w io.Writer, volumes []api.Volume, wide bool) error {
	header := "NAME KIND SIZE USED PODS AGE"
	if wide {
		header += " CLAIM LABELS"
	}
	var rows [][]string
	for _, v := range volumes {
		kind := v.Kind
		if v.Damage != "" {
			kind = "damaged"
		}
		var pods []string
		for _, p := range v.Pods {
			pods = append(pods, strings.TrimPrefix(p, "default/"))
		}
		row := []string{v.Name, kind, text.Size(v.Size), text.Size(v.Used), text.Dash(strings.Join(pods, ",")), text.Age(v.Created)}
		if wide {
			var labels []string
			for _, key := range slices.Sorted(maps.Keys(v.Labels)) {
				labels = append(labels, text.Printable(key+"="+v.Labels[key]))
			}
			row = append(row, text.Dash(v.Claim), text.Dash(strings.Join(labels, ",")))
		}
		rows = append(rows, row)
	}
	return output.Table(w, header, rows)
}
