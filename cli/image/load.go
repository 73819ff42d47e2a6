package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func load(a *app.App) *cobra.Command {
	var quiet bool
	var input string
	var owner user
	cmd := &cobra.Command{
		Use:   "load [FILE|-] [NAME]",
		Short: "Load an image from a file or directory",
		Long: `Load an image from a file or a directory: an archive of podman save or docker save, or an
OCI layout, packed or not. The image gets the name NAME, or the name in the archive.
Archives may be compressed with gzip, zstd or bzip2. To choose one of several images,
write docker-archive:FILE:NAME, oci-archive:FILE:TAG or oci:DIR:TAG. Without FILE, or
with -, the archive is read from stdin.

With --for, the image is loaded for bulkhead node or bulkhead cri: their pods then need
no registry for it.`,
		Example: `  bulkhead image load app.tar
  bulkhead image load app.tar.gz localhost/app:dev
  bulkhead image load docker-archive:several.tar:app:1.2
  bulkhead image load --for node app.tar
  podman save localhost/app:dev | bulkhead image load`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if input != "" {
				args = append([]string{input}, args...)
			}
			if len(args) == 0 {
				args = []string{"-"}
			}
			source, done, err := sourceOf(a, args[0])
			if err != nil {
				return err
			}
			defer done()
			req := api.LoadRequest{Source: source}
			if len(args) > 1 {
				req.Name = args[len(args)-1]
			}
			return fetch(a, cmd, "/v1/images/load", owner, req, quiet)
		},
	}
	owner.add(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not show progress bars")
	cmd.Flags().StringVarP(&input, "input", "i", "", "file to load, as in podman")
	return cmd
}

// sourceOf returns the path of the archive to load. For stdin it is a temporary file, which done removes.
func sourceOf(a *app.App, source string) (path string, done func(), err error) {
	if source != "-" {
		path, err = absolute(source)
		return path, func() {}, err
	}
	if tty.IsTerminal(a.In) {
		return "", nil, errors.New("stdin is a terminal: name a FILE, or redirect an archive to stdin")
	}
	f, err := os.CreateTemp("", "bulkhead-load-*.tar")
	if err != nil {
		return "", nil, err
	}
	done = func() { os.Remove(f.Name()) }
	if _, err = io.Copy(f, a.In); err == nil {
		err = f.Close()
	}
	if err != nil {
		f.Close()
		done()
		return "", nil, fmt.Errorf("read an archive from stdin: %w", err)
	}
	return f.Name(), done, nil
}

// absolute makes the path of a source absolute, because the engine has another working directory.
func absolute(source string) (string, error) {
	prefix := ""
	if format, _, ok := strings.Cut(source, ":"); ok && slices.Contains([]string{"oci", "oci-archive", "docker-archive"}, format) {
		prefix = format + ":"
	}
	path, err := filepath.Abs(source[len(prefix):])
	return prefix + path, err
}
