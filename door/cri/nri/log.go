package nri

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	nrilog "github.com/containerd/nri/pkg/log"
)

// useLogger redirects the library's log, which is global to the process, to l.
func useLogger(l *slog.Logger) {
	current.Store(l)
	setLogger()
}

var (
	current   atomic.Pointer[slog.Logger]
	setLogger = sync.OnceFunc(func() { nrilog.Set(logger{}) })
)

type logger struct{}

func (logger) Debugf(ctx context.Context, format string, args ...any) {
	write(ctx, slog.LevelDebug, format, args)
}

func (logger) Infof(ctx context.Context, format string, args ...any) {
	write(ctx, slog.LevelInfo, format, args)
}

func (logger) Warnf(ctx context.Context, format string, args ...any) {
	write(ctx, slog.LevelWarn, format, args)
}

func (logger) Errorf(ctx context.Context, format string, args ...any) {
	write(ctx, slog.LevelError, format, args)
}

func write(ctx context.Context, level slog.Level, format string, args []any) {
	text := fmt.Sprintf(format, args...)
	if strings.Contains(text, "WASM support is disabled") {
		level = slog.LevelDebug // left out on purpose
	}
	current.Load().Log(ctx, level, "nri: "+text)
}
