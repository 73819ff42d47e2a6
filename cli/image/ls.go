package image

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

func ls(a *app.App) *cobra.Command {
	var f output.Format
	var owner user
	var quiet bool
	var format string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List images", Args: app.AtMost(),
		Example: "  bulkhead image ls\n  bulkhead image ls -o wide\n  bulkhead image ls --for node",
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := owner.query()
			if err != nil {
				return err
			}
			images := []api.Image{}
			if err := a.Client.Call(cmd.Context(), "GET", "/v1/images", query, nil, &images); err != nil {
				return err
			}
			if quiet {
				for _, i := range images {
					fmt.Fprintln(a.Out, shortid.Of(strings.TrimPrefix(i.ID, "sha256:")))
				}
				return nil
			}
			if format != "" {
				return a.ShowRows(cmd.Context(), format, lines(images))
			}
			return a.Show(cmd.Context(), f, images, output.Views{
				Table: func(w io.Writer) error { return table(w, images, false) },
				Wide:  func(w io.Writer) error { return table(w, images, true) },
				Names: func() []string { return names(images) },
			})
		},
	}
	f.AddList(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only ids")
	cmd.Flags().StringVar(&format, "format", "", "Go template for each name, such as {{.Repository}}:{{.Tag}}; json prints the whole list")
	cmd.Flags().BoolP("all", "a", false, "accepted for podman users; all images are always listed")
	owner.add(cmd)
	return cmd
}

// line has the fields of ls --format, named as in podman.
type line struct {
	ID, Repository, Tag, Name, Digest, Size, CreatedSince, CreatedAt string
}

func lines(images []api.Image) []line {
	list := []line{}
	for _, i := range images {
		_, digest, _ := strings.Cut(i.Digest, "@")
		l := line{
			ID: shortid.Of(strings.TrimPrefix(i.ID, "sha256:")), Repository: "<none>", Tag: "<none>", Name: "<none>", Digest: digest,
			Size: text.Size(i.Size), CreatedSince: text.Age(i.Created), CreatedAt: i.Created.Format(time.RFC3339),
		}
		if len(i.Names) == 0 {
			list = append(list, l)
		}
		for _, name := range i.Names {
			l.Name, l.Repository = name, name
			if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
				l.Repository, l.Tag = name[:at], name[at+1:]
			}
			list = append(list, l)
		}
	}
	return list
}

// table prints a line for each name of an image.
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

// names returns the names of images, and the ids of images without one.
func names(images []api.Image) []string {
	var names []string
	for _, i := range images {
		if names = append(names, i.Names...); len(i.Names) == 0 {
			names = append(names, i.ID)
		}
	}
	return names
}
