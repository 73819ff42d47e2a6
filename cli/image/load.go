package image

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func load(a *app.App) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "load SOURCE [NAME]",
		Short: "Load an image from this machine",
		Long:  "Load an image from oci:DIR[:TAG], oci-archive:FILE or docker-archive:FILE, under NAME or the name it carries.",
		Example: `  bulkhead image load oci-archive:app.tar localhost/app:dev
  bulkhead image load docker-archive:saved.tar`,
		Args: cobra.MatchAll(app.AtLeast("SOURCE"), cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := absolute(args[0])
			if err != nil {
				return err
			}
			req := api.LoadRequest{Source: source}
			if len(args) == 2 {
				req.Name = args[1]
			}
			return fetch(a, cmd, "/v1/images/load", req, quiet)
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
