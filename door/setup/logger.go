package setup

import (
	"log/slog"
	"os"
)

// Logger writes to stderr what is of that level at least, as text or as JSON.
func Logger(level, format string) (*slog.Logger, error) {
	var o slog.HandlerOptions
	least := new(slog.LevelVar)
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, err
	}
	o.Level = least
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, &o)), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &o)), nil
}
