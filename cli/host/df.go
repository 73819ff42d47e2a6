package host

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func df(a *app.App) *cobra.Command {
	var f output.Format
	cmd := &cobra.Command{
		Use: "df", Short: "Show what pods, images, volumes and templates take of the disk", Args: app.AtMost(),
		Example: "  bulkhead system df\n  bulkhead system df -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := []api.DiskShare{}
			if err := a.Client.Call(cmd.Context(), "GET", "/v1/system/df", nil, nil, &list); err != nil {
				return err
			}
			return a.Show(cmd.Context(), f, list, output.Views{Table: func(w io.Writer) error {
				var rows [][]string
				for _, s := range list {
					rows = append(rows, []string{s.Type, strconv.Itoa(s.Total), strconv.Itoa(s.Active), text.Size(s.Bytes), text.Size(s.Reclaimable)})
				}
				return output.Table(w, "TYPE TOTAL ACTIVE SIZE RECLAIMABLE", rows)
			}})
		},
	}
	f.Add(cmd)
	return cmd
}
