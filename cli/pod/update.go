package pod

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Update is the command update.
func Update(a *app.App) *cobra.Command {
	var files []string
	var container string
	flags := map[string]*string{"cpus": new(""), "memory": new(""), "cpu-request": new(""), "memory-request": new("")}
	cmd := &cobra.Command{
		Use:   "update POD",
		Short: "Change ConfigMaps, Secrets and resources of a running pod",
		Long: `Change ConfigMaps, Secrets and resources of a running pod.

The ConfigMaps and Secrets in the given documents replace those of the same name that
the pod was run with. Volumes that use them change in the running containers.
Environment variables change when a container restarts.

Limits and requests of CPU and memory change in the running container, or by a restart
of the container if its resizePolicy says so. The VM's memory grows and shrinks with
them. The VM's number of CPUs stays the same.`,
		Example: `  bulkhead update web -f settings.yaml
  bulkhead update web -c server --cpus 0.5 --memory 256m`,
		Args: app.Exactly("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.UpdateRequest{Container: container, Limits: map[string]string{}, Requests: map[string]string{}}
			for name, value := range flags {
				resource, isRequest := strings.CutSuffix(name, "-request")
				if !cmd.Flags().Changed(name) {
					continue
				}
				if resource == "memory" {
					var err error
					if *value, err = text.Memory(*value); err != nil {
						return fmt.Errorf("--%s %w", name, err)
					}
				}
				switch {
				case isRequest:
					req.Requests[resource] = *value
				default:
					req.Limits[strings.TrimSuffix(resource, "s")] = *value
				}
			}
			if len(files)+len(req.Limits)+len(req.Requests) == 0 {
				return errors.New("nothing to change: give -f FILE, or --cpus or --memory")
			}
			for _, name := range files {
				m, err := a.Manifest(name)
				if err != nil {
					return err
				}
				req.Manifests = append(req.Manifests, m)
			}
			return a.Client.Call(cmd.Context(), "POST", "/v1/pods/"+url.PathEscape(args[0])+"/update", nil, req, nil)
		},
	}
	cmd.Flags().StringVarP(&container, "container", "c", "", "container to change the CPU and memory of (default: the first)")
	cmd.Flags().StringVar(flags["cpus"], "cpus", "", "CPU limit: 1.5, or 1500m as in a Pod")
	cmd.Flags().StringVarP(flags["memory"], "memory", "m", "", "memory limit: 256m, or 256Mi as in a Pod")
	cmd.Flags().StringVar(flags["cpu-request"], "cpu-request", "", "CPU request (default: the limit, if the two were equal)")
	cmd.Flags().StringVar(flags["memory-request"], "memory-request", "", "memory request (default: the limit, if the two were equal)")
	cmd.Flags().SetNormalizeFunc(app.CPUs)
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "file with ConfigMaps and Secrets (- for stdin)")
	return cmd
}
