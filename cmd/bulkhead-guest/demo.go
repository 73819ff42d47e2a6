package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
)

func demoImageCommand() *cobra.Command {
	var binary, out string
	cmd := &cobra.Command{
		Use:     "demo-image",
		Short:   "Make the demo image, of busybox, as an OCI archive",
		Example: "  bulkhead-guest demo-image --out build/busybox.tar",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			img, err := busybox.Image(cmd.Context(), binary)
			if err != nil {
				return err
			}
			tmp, err := os.MkdirTemp("", "bulkhead-demo-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(tmp)
			layout := filepath.Join(tmp, "layout")
			if err := ociimage.WriteLayout(layout, img); err != nil {
				return err
			}
			return ociimage.WriteArchive(out, layout)
		},
	}
	cmd.Flags().StringVar(&binary, "busybox", busybox.Built, "the static busybox")
	cmd.Flags().StringVar(&out, "out", "build/busybox.tar", "the archive to write")
	return cmd
}
