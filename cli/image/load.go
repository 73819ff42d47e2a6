package image

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func load(a *app.App) *cobra.Command {
	var quiet bool
	var whose user
	cmd := &cobra.Command{
		Use:   "load FILE [NAME]",
		Short: "Load an image from this machine",
		Long: `Load an image from a file or a directory, under NAME or the name it carries: what
podman save or docker save wrote, or an OCI layout, packed or not. Archives may be
compressed with gzip, zstd or bzip2. Of several images in one, say which with
docker-archive:FILE:NAME, oci-archive:FILE:TAG or oci:DIR:TAG.

With --for a node or a kubelet has it before a pod asks for it, without a registry.`,
		Example: `  bulkhead image load app.tar
  bulkhead image load app.tar.gz localhost/app:dev
  bulkhead image load docker-archive:several.tar:app:1.2
  bulkhead image load --for node app.tar`,
		Args: cobra.MatchAll(app.AtLeast("FILE"), cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := absolute(args[0])
			if err != nil {
				return err
			}
			req := api.LoadRequest{Source: source}
			if len(args) == 2 {
				req.Name = args[1]
			}
			return fetch(a, cmd, "/v1/images/load", whose, req, quiet)
		},
	}
	whose.add(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress bars")
	return cmd
}

// absolute makes the path of a source absolute: the engine has a working
// directory of its own.
func absolute(source string) (string, error) {
	prefix := ""
	if format, _, ok := strings.Cut(source, ":"); ok && slices.Contains([]string{"oci", "oci-archive", "docker-archive"}, format) {
		prefix = format + ":"
	}
	path, err := filepath.Abs(source[len(prefix):])
	return prefix + path, err
}
