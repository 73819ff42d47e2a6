package image

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

func ls(a *app.App) *cobra.Command {
	var f output.Format
	var whose user
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List images", Args: app.AtMost(),
		Example: "  bulkhead image ls\n  bulkhead image ls -o wide\n  bulkhead image ls --for node",
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := whose.query()
			if err != nil {
				return err
			}
			images := []api.Image{}
			if err := a.Client.Call(cmd.Context(), "GET", "/v1/images", query, nil, &images); err != nil {
				return err
			}
			return a.Show(cmd.Context(), f, images, output.Views{
				Table: func(w io.Writer) error { return table(w, images, false) },
				Wide:  func(w io.Writer) error { return table(w, images, true) },
				Names: func() []string { return names(images) },
			})
		},
	}
	f.AddList(cmd)
	whose.add(cmd)
	return cmd
}

// table has a line for each name.
func table(w io.Writer, images []api.Image, wide bool) error {
	header := "NAME ID CREATED SIZE"
	if wide {
		header += " DIGEST"
	}
	var rows [][]string
	for _, i := range images {
		names := i.Names
		if len(names) == 0 {
			names = []string{"<none>"}
		}
		for _, n := range names {
			row := []string{n, shortid.Of(strings.TrimPrefix(i.ID, "sha256:")), text.Age(i.Created), text.Size(i.Size)}
			if wide {
				_, digest, _ := strings.Cut(i.Digest, "@")
				row = append(row, text.Dash(digest))
			}
			rows = append(rows, row)
		}
	}
	return output.Table(w, header, rows)
}

// names are the images' names, and the ids of those without one.
func names(images []api.Image) []string {
	var names []string
	for _, i := range images {
		if names = append(names, i.Names...); len(i.Names) == 0 {
			names = append(names, i.ID)
		}
	}
	return names
}
