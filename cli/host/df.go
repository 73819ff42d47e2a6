package host

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

func df(a *app.App) *cobra.Command {
	var f output.Format
	var verbose bool
	cmd := &cobra.Command{
		Use: "df", Short: "Show the disk usage of pods, images, volumes and templates", Args: app.AtMost(),
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
				if err := output.Table(w, "TYPE TOTAL ACTIVE SIZE RECLAIMABLE", rows); err != nil || !verbose {
					return err
				}
				return each(cmd.Context(), a, w)
			}})
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "also list each image, volume and template")
	return cmd
}

// each prints one line for each image, volume and template.
func each(ctx context.Context, a *app.App, w io.Writer) error {
	var images []api.Image
	var volumes []api.Volume
	var templates []api.Template
	for path, to := range map[string]any{"/v1/images": &images, "/v1/volumes": &volumes, "/v1/templates": &templates} {
		if err := a.Client.Call(ctx, "GET", path, nil, nil, to); err != nil {
			return err
		}
	}
	var rows [][]string
	for _, i := range images {
		name := "<none>"
		if len(i.Names) > 0 {
			name = strings.Join(i.Names, ",")
		}
		rows = append(rows, []string{"image", shortid.Of(strings.TrimPrefix(i.ID, "sha256:")), text.Size(i.Size), text.Age(i.Created), name})
	}
	for _, v := range volumes {
		rows = append(rows, []string{"volume", "-", text.Size(v.Used), text.Age(v.Created), v.Name})
	}
	for _, t := range templates {
		name := fmt.Sprintf("%d CPU, %d MiB, network %s, %s", t.VCPUs, t.Memory, t.Network, t.Accel)
		rows = append(rows, []string{"template", shortid.Of(t.Key), text.Size(t.Size), text.Age(t.Created), name})
	}
	fmt.Fprintln(w)
	return output.Table(w, "TYPE ID SIZE CREATED NAME", rows)
}
