package app

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Targets selects the pods of a command: by name, by workload, by file or by label selector.
type Targets struct {
	Selector string // of labels, in kubectl's language
	Files    bool   // arguments may be files; their pods are meant
}

// Add adds the flag -l.
func (t *Targets) Add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&t.Selector, "selector", "l", "", "select pods by their labels, such as app=web,tier!=front")
}

// Args requires pods or a selector.
func (t *Targets) Args(_ *cobra.Command, given []string) error {
	if len(given) == 0 && t.Selector == "" {
		return errors.New("POD is missing: name pods, or give --selector")
	}
	return nil
}

// EachTarget is EachPod for the pods that t and args select.
func (a *App) EachTarget(ctx context.Context, t Targets, args []string, call func(ref string) (touched string, err error)) error {
	refs, err := a.Targets(ctx, t, args)
	if err != nil {
		return err
	}
	return a.EachPod(refs, call)
}

// workloads maps the names of workload kinds, with kubectl's short names, to the kinds.
var workloads = map[string]string{
	"deployment": "Deployment", "deployments": "Deployment", "deploy": "Deployment",
	"replicaset": "ReplicaSet", "replicasets": "ReplicaSet", "rs": "ReplicaSet",
	"daemonset": "DaemonSet", "daemonsets": "DaemonSet", "ds": "DaemonSet",
	"statefulset": "StatefulSet", "statefulsets": "StatefulSet", "sts": "StatefulSet",
	"job": "Job", "jobs": "Job",
}

// Workload parses deployment/NAME and the like, and reports whether arg names a workload.
func Workload(arg string) (kind, name string, yes bool) {
	kind, name, yes = strings.Cut(arg, "/")
	kind, known := workloads[strings.ToLower(kind)]
	return kind, name, yes && known && name != ""
}

// Pods lists the engine's pods. Empty values in the query select all.
func (a *App) Pods(ctx context.Context, query url.Values) (pods []api.Pod, err error) {
	if a.Namespace != "" {
		query.Set("namespace", a.Namespace)
	}
	err = a.Client.Call(ctx, "GET", "/v1/pods", query, nil, &pods)
	return pods, err
}

// Targets returns references to the selected pods. If a selector matches no pod, it prints a note and returns no
// error.
func (a *App) Targets(ctx context.Context, t Targets, args []string) ([]string, error) {
	if t.Selector != "" {
		if len(args) > 0 {
			return nil, errors.New("give either pods or --selector")
		}
		refs, err := a.chosen(ctx, url.Values{"selector": {t.Selector}})
		if err == nil && len(refs) == 0 {
			fmt.Fprintf(a.Err, "bulkhead: no pod has the labels %s\n", t.Selector)
		}
		return refs, err
	}
	var refs, files []string
	for _, arg := range args {
		kind, name, isWorkload := Workload(arg)
		switch {
		case t.Files && IsFile(arg):
			files = append(files, arg)
		case isWorkload:
			of, err := a.chosen(ctx, url.Values{"kind": {kind}, "workload": {name}})
			if err == nil && len(of) == 0 {
				err = fmt.Errorf("%s: %w: it has no pods here", arg, errdefs.ErrNotFound)
			}
			if err != nil {
				return nil, err
			}
			refs = append(refs, of...)
		default:
			refs = append(refs, arg)
		}
	}
	if len(files) == 0 {
		return refs, nil
	}
	of, err := a.podsOf(ctx, files)
	return append(refs, of...), err
}

func (a *App) chosen(ctx context.Context, query url.Values) (refs []string, err error) {
	pods, err := a.Pods(ctx, query)
	for _, p := range pods {
		refs = append(refs, p.Namespace+"/"+p.Name)
	}
	return refs, err
}

// podsOf returns the pods that files describe, whether they exist or not.
func (a *App) podsOf(ctx context.Context, files []string) ([]string, error) {
	manifests, err := a.Manifests(files)
	if err != nil {
		return nil, err
	}
	var names api.Names
	err = a.Client.Call(ctx, "POST", "/v1/names", nil, api.NamesRequest{Manifests: manifests}, &names)
	return names.Pods, err
}
