package cli

import (
	"errors"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/supervisor/api"
)

func (a *app) updateCmd() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "update POD",
		Short: "Change what a running pod has",
		Long: `Change what a running pod has.

The ConfigMaps and Secrets of the documents that are given replace those of the
same name that the pod was run with. Volumes of them change in the running
containers; environments when a container starts again.`,
		Example: `  bulkhead update web -f settings.yaml`,
		Args:    exactly("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(files) == 0 {
				return errors.New("nothing to change: give -f FILE")
			}
			req := api.UpdateRequest{}
			for _, name := range files {
				m, err := a.manifest(name)
				if err != nil {
					return err
				}
				req.Manifests = append(req.Manifests, m)
			}
			return a.client.Call(cmd.Context(), "POST", "/v1/pods/"+url.PathEscape(args[0])+"/update", nil, req, nil)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "documents with ConfigMaps and Secrets (- for stdin)")
	return cmd
}
