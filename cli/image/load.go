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
	var whose user
	cmd := &cobra.Command{
		Use:   "load [FILE|-] [NAME]",
		Short: "Load an image from this machine",
		Long: `Load an image from a file or a directory, under NAME or the name it carries: what
podman save or docker save wrote, or an OCI layout, packed or not. Archives may be
compressed with gzip, zstd or bzip2. Of several images in one, say which with
docker-archive:FILE:NAME, oci-archive:FILE:TAG or oci:DIR:TAG. Without FILE, or with -,
the archive is read from stdin.

With --for a node or a kubelet has it before a pod asks for it, without a registry.`,
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
			return fetch(a, cmd, "/v1/images/load", whose, req, quiet)
		},
	}
	whose.add(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress bars")
	cmd.Flags().StringVarP(&input, "input", "i", "", "the file, as podman has it")
	return cmd
}

// sourceOf is the path of what is loaded: of a file that has what comes on stdin, until done.
func sourceOf(a *app.App, source string) (path string, done func(), err error) {
	if source != "-" {
		path, err = absolute(source)
		return path, func() {}, err
	}
	if tty.IsTerminal(a.In) {
		return "", nil, errors.New("name a FILE, or redirect stdin to an archive: it is a terminal")
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
