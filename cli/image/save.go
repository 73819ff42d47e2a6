package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func save(a *app.App) *cobra.Command {
	req := api.SaveRequest{}
	var output string
	cmd := &cobra.Command{
		Use: "save IMAGE", Short: "Save an image to an archive",
		Long: `Save an image to an archive that podman, docker and bulkhead can load. The archive has
one layer with all files of the image, and the same configuration. Its id is different.`,
		Example: `  bulkhead image save -o app.tar app:dev
  bulkhead image save app:dev | gzip > app.tar.gz`,
		Args: app.Exactly("IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := app.Choice("format", req.Format, "docker-archive", "oci-archive"); err != nil {
				return err
			}
			req.Image = args[0]
			if output == "" {
				return saveTo(a, cmd, req)
			}
			if req.Path, err = filepath.Abs(output); err != nil {
				return err
			}
			return a.Client.Call(cmd.Context(), "POST", "/v1/images/save", nil, req, nil)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write (default: stdout)")
	cmd.Flags().StringVar(&req.Format, "format", "docker-archive", "archive format: docker-archive or oci-archive")
	return cmd
}

// saveTo prints the archive, which the engine first writes to a temporary file.
func saveTo(a *app.App, cmd *cobra.Command, req api.SaveRequest) (err error) {
	if f, ok := a.Out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return errors.New("stdout is a terminal: name a file with -o, or redirect stdout")
	}
	dir, err := os.MkdirTemp("", "bulkhead-save-*")
	if err != nil {
		return fmt.Errorf("save: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	req.Path = filepath.Join(dir, "image.tar")
	if err := a.Client.Call(cmd.Context(), "POST", "/v1/images/save", nil, req, nil); err != nil {
		return err
	}
	f, err := os.Open(req.Path)
	if err != nil {
		return fmt.Errorf("save: %w", err)
	}
	_, err = io.Copy(a.Out, f)
	return errors.Join(err, f.Close())
}
