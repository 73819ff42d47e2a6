package podapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bulkhead-project/bulkhead/pod/internal/nearest"
)

// kinds are the readers of the supported objects, by apiVersion and kind.
var kinds = map[string]func(d *decoder, text []byte, prefix string){
	"v1 Pod":                   (*decoder).pod,
	"v1 ConfigMap":             (*decoder).configMap,
	"v1 Secret":                (*decoder).secret,
	"v1 PersistentVolumeClaim": (*decoder).claim,
	"apps/v1 Deployment":       (*decoder).deployment,
	"apps/v1 ReplicaSet":       (*decoder).replicaSet,
	"apps/v1 StatefulSet":      (*decoder).statefulSet,
	"apps/v1 DaemonSet":        (*decoder).daemonSet,
	"batch/v1 Job":             (*decoder).job,
}

// unsupported are kinds that need a cluster, with the reason or an alternative.
var unsupported = map[string]string{
	"CronJob":                 "there is no scheduling by time; make a Job of its spec.jobTemplate.spec",
	"ReplicationController":   "not run; make a Pod of its spec.template",
	"Service":                 "there are no services; publish a port with hostPort or -p",
	"Endpoints":               "there are no services",
	"EndpointSlice":           "there are no services",
	"Ingress":                 "there are no services; publish a port with hostPort or -p",
	"IngressClass":            "there are no services",
	"NetworkPolicy":           "pods cannot reach each other, so there is no traffic to allow",
	"Namespace":               "a namespace is part of a pod's name, and needs no object",
	"ServiceAccount":          noServer,
	"Role":                    noServer,
	"RoleBinding":             noServer,
	"ClusterRole":             noServer,
	"ClusterRoleBinding":      noServer,
	"LimitRange":              noServer,
	"ResourceQuota":           noServer,
	"PersistentVolume":        "a claim creates its volume",
	"StorageClass":            "volumes are on this host; a claim states its size",
	"HorizontalPodAutoscaler": "there is no scaling",
	"PodDisruptionBudget":     "pods are never evicted",
	"PriorityClass":           "pods are never preempted or evicted",
	"PodTemplate":             "it does not run pods by itself",
}

const noServer = "there is no API server"

// skipped are the skipped objects of one kind.
type skipped struct {
	at, kind, why string
	count         int
}

// unread refuses an object that is not supported, or skips it if it is a known object of clusters.
func (d *decoder) unread(version, kind, prefix string) {
	why, cluster := unsupported[kind]
	group, _, grouped := strings.Cut(version, "/")
	if !cluster && grouped && strings.Contains(group, ".") && kinds["apps/v1 "+kind] == nil && kinds["batch/v1 "+kind] == nil {
		why, cluster = "there is no controller for it", true
	}
	name := kind
	if version != "" {
		name += " (" + version + ")"
	}
	if !cluster {
		d.add(0, prefix+"kind", errNotHonoured, name+": "+hint(kind))
		return
	}
	if !d.options.IgnoreUnsupported {
		d.add(0, prefix+"kind", errNotHonoured, name+": "+why)
		return
	}
	d.objects++
	if d.skipped[name] == nil {
		at := d.file
		if line := lineOf(d.root, prefix+"kind"); line > 0 {
			at = fmt.Sprintf("%s:%d", d.file, d.before+line)
		}
		d.skipped[name] = &skipped{at: at, kind: name, why: why}
	}
	d.skipped[name].count++
}

// warnings returns one warning for each skipped kind.
func (d *decoder) warnings() []string {
	var out []string
	for _, s := range d.skipped {
		text := s.at + ": " + s.kind + ": skipped"
		if s.count > 1 {
			text += fmt.Sprintf(", and %d more", s.count-1)
		}
		out = append(out, text+": "+s.why)
	}
	slices.Sort(out)
	return out
}

// hint returns advice for an object of an unknown kind.
func hint(kind string) string {
	var names []string
	for known := range kinds {
		version, of, _ := strings.Cut(known, " ")
		if of == kind {
			return "apiVersion must be " + version
		}
		names = append(names, of)
	}
	return "only Pods, workloads made of them, ConfigMaps, Secrets and PersistentVolumeClaims are read" + nearest.Suggest(kind, names)
}
