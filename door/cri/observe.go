package cri

import (
	"cmp"
	"context"
	"log/slog"
	"path"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/cri/tracing"
	"github.com/bulkhead-project/bulkhead/door/metrics"
	"github.com/bulkhead-project/bulkhead/engine"
)

// observer counts and logs clients' calls. It logs only names and IDs from a call: environments, commands and
// credentials may be secret.
type observer struct {
	metrics *metrics.Metrics
	tracer  *tracing.Tracer
	log     *slog.Logger
	// facts returns the facts about a started pod.
	facts func(ctx context.Context, pod string) (*engine.Facts, error)
}

func (o observer) unary(ctx context.Context, q any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	began := time.Now()
	recording, steps := o.tracer.Record(ctx)
	res, err := h(recording, q)
	o.tracer.Steps(ctx, steps)
	err = coded(err)
	o.ended(ctx, info.FullMethod, began, err, q, res)
	return res, err
}

func (o observer) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	began := time.Now()
	err := coded(h(srv, s))
	o.ended(s.Context(), info.FullMethod, began, err)
	return err
}

// ended records a finished call. about is its request and its response, if any.
func (o observer) ended(ctx context.Context, full string, began time.Time, err error, about ...any) {
	service, method, took, code := path.Base(path.Dir(full)), path.Base(full), time.Since(began), status.Code(err)
	o.metrics.Called(service, method, code, took)
	whom := names(about)
	o.tracer.About(ctx, whom)
	if err == nil && method == "RunPodSandbox" {
		o.tracer.Started(ctx, took, func() (*engine.Facts, error) { return o.facts(ctx, podOf(about)) })
	}
	level := levelOf(method, code)
	if !o.log.Enabled(ctx, level) {
		return
	}
	attrs := append([]slog.Attr{slog.String("method", method)}, whom...)
	attrs = append(attrs, slog.Duration("took", took))
	if err != nil {
		attrs = append(attrs, slog.String("code", code.String()), slog.String("error", status.Convert(err).Message()))
	}
	o.log.LogAttrs(ctx, level, "call", attrs...)
}

// changes are the calls that change something.
var changes = []string{
	"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "UpdatePodSandboxResources", "CreateContainer", "StartContainer",
	"StopContainer", "RemoveContainer", "UpdateContainerResources", "PullImage", "RemoveImage",
}

func levelOf(method string, code codes.Code) slog.Level {
	switch code {
	case codes.OK:
		if slices.Contains(changes, method) {
			return slog.LevelInfo
		}
		return slog.LevelDebug
	case codes.NotFound, codes.Canceled: // clients expect these
		return slog.LevelDebug
	case codes.Unimplemented: // clients try some calls and can do without
		if !slices.Contains(changes, method) {
			return slog.LevelDebug
		}
	}
	return slog.LevelWarn
}

// podOf returns the ID of the pod in the requests and responses.
func podOf(about []any) (id string) {
	for _, a := range about {
		if m, ok := a.(interface{ GetPodSandboxId() string }); ok {
			id = cmp.Or(id, m.GetPodSandboxId())
		}
	}
	return id
}

// names returns the names and IDs in the requests and responses.
func names(about []any) (attrs []slog.Attr) {
	add := func(key, value string) {
		same := func(a slog.Attr) bool { return a.Key == key }
		if value != "" && !slices.ContainsFunc(attrs, same) {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	add("pod", podOf(about))
	for _, a := range about {
		if m, ok := a.(interface{ GetContainerId() string }); ok {
			add("container", m.GetContainerId())
		}
		if m, ok := a.(*runtimeapi.RunPodSandboxRequest); ok {
			meta := m.GetConfig().GetMetadata()
			add("namespace", meta.GetNamespace())
			add("name", meta.GetName())
		}
		if m, ok := a.(*runtimeapi.CreateContainerRequest); ok {
			add("name", m.GetConfig().GetMetadata().GetName())
		}
		if m, ok := a.(interface{ GetImage() *runtimeapi.ImageSpec }); ok {
			add("image", m.GetImage().GetImage())
		}
	}
	return attrs
}
