package cli

import (
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func (a *app) imageCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Aliases: []string{"images"}, Short: "Pull, load, list, inspect and remove images",
		Example: `  bulkhead image pull registry.example.org/app:1.2
  bulkhead image load oci-archive:app.tar localhost/app:dev
  bulkhead image ls`,
	}
	cmd.AddCommand(a.imagePullCmd(), a.imageLoadCmd(), a.imageLsCmd(), a.imageInspectCmd(), a.imageRmCmd(), a.imagePruneCmd())
	return cmd
}

func (a *app) imagePullCmd() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "pull IMAGE…",
		Short: "Pull images from a registry and make their disks",
		Long: `Pull images from a registry. Mirrors and plain-HTTP registries come from
registries.conf, credentials from auth.json (bulkhead login), what may be pulled
from policy.json, proxies from the environment.`,
		Example: "  bulkhead image pull registry.example.org/app:1.2",
		Args:    atLeast("IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, ref := range args {
				if err := a.fetch(cmd, "/v1/images/pull", api.PullRequest{Image: ref}, quiet); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress bars")
	return cmd
}

func (a *app) imageLoadCmd() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "load SOURCE [NAME]",
		Short: "Load an image from this machine",
		Long:  "Load an image from oci:DIR[:TAG], oci-archive:FILE or docker-archive:FILE, under NAME or the name it carries.",
		Example: `  bulkhead image load oci-archive:app.tar localhost/app:dev
  bulkhead image load docker-archive:saved.tar`,
		Args: cobra.MatchAll(atLeast("SOURCE"), cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := absolute(args[0])
			if err != nil {
				return err
			}
			req := api.LoadRequest{Source: source}
			if len(args) == 2 {
				req.Name = args[1]
			}
			return a.fetch(cmd, "/v1/images/load", req, quiet)
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress bars")
	return cmd
}

// absolute makes the path in "transport:path" absolute: the engine has a
// working directory of its own.
func absolute(source string) (string, error) {
	transport, path, ok := strings.Cut(source, ":")
	if !ok {
		return "", fmt.Errorf("%q names no transport: use oci:DIR, oci-archive:FILE or docker-archive:FILE", source)
	}
	path, err := filepath.Abs(path)
	return transport + ":" + path, err
}

// fetch makes one image call with its progress drawn, and prints the id.
func (a *app) fetch(cmd *cobra.Command, path string, req any, quiet bool) error {
	bars := newBars(a.err, quiet)
	defer bars.close()
	return a.client.Stream(cmd.Context(), "POST", path, nil, req, func(m api.Message) error {
		if m.Progress != nil {
			bars.update(*m.Progress)
		}
		if m.Image != nil {
			bars.close()
			fmt.Fprintln(a.out, m.Image.ID)
		}
		return nil
	})
}

func (a *app) imageLsCmd() *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List images", Args: atMost(),
		Example: "  bulkhead image ls\n  bulkhead image ls -o wide",
		RunE: func(cmd *cobra.Command, _ []string) error {
			images := []api.Image{}
			if err := a.client.Call(cmd.Context(), "GET", "/v1/images", nil, nil, &images); err != nil {
				return err
			}
			return a.show(cmd.Context(), f, images, views{
				table: func(w io.Writer) error { return imageTable(w, images, false) },
				wide:  func(w io.Writer) error { return imageTable(w, images, true) },
				names: func() []string { return imageNames(images) },
			})
		},
	}
	f.addList(cmd)
	return cmd
}

// imageTable has a line for each name.
func imageTable(w io.Writer, images []api.Image, wide bool) error {
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
			row := []string{n, short(strings.TrimPrefix(i.ID, "sha256:")), age(i.Created), size(i.Size)}
			if wide {
				_, digest, _ := strings.Cut(i.Digest, "@")
				row = append(row, dash(digest))
			}
			rows = append(rows, row)
		}
	}
	return table(w, header, rows)
}

// imageNames are the images' names, and the ids of those without one.
func imageNames(images []api.Image) []string {
	var names []string
	for _, i := range images {
		if names = append(names, i.Names...); len(i.Names) == 0 {
			names = append(names, i.ID)
		}
	}
	return names
}

func (a *app) imageRmCmd() *cobra.Command {
	return &cobra.Command{
		Use: "rm IMAGE…", Short: "Remove images that no pod uses", Args: atLeast("IMAGE"),
		Example: "  bulkhead image rm localhost/app:dev",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachPod(args, func(ref string) error {
				return a.client.Call(cmd.Context(), "DELETE", "/v1/images/"+url.PathEscape(ref), nil, nil, nil)
			})
		},
	}
}
