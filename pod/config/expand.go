package config

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// expand replaces the references $(NAME) in text by what lookup finds. A
// reference that is not found, or not closed, stays as it is written, and $$
// stands for one $, so that $$(NAME) is the text "$(NAME)".
func expand(text string, lookup func(name string) (string, bool)) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "("):
			name, after, closed := strings.Cut(rest[1:], ")")
			if !closed {
				out.WriteString("$(")
				text = rest[1:]
				continue
			}
			if value, known := lookup(name); known {
				out.WriteString(value)
			} else {
				out.WriteString("$(" + name + ")")
			}
			text = after
		default:
			out.WriteByte('$')
			text = rest
		}
	}
}

func expandAll(texts []string, lookup func(name string) (string, bool)) []string {
	var out []string
	for _, text := range texts {
		out = append(out, expand(text, lookup))
	}
	return out
}

// StaticCommand is a probe's command with the references to those variables of
// the container expanded that have their values in the pod itself.
func StaticCommand(c *corev1.Container, command []string) []string {
	values := make(map[string]string, len(c.Env))
	for _, env := range c.Env {
		values[env.Name] = env.Value
	}
	out := make([]string, len(command))
	for i, word := range command {
		out[i] = expand(word, func(name string) (string, bool) { value, known := values[name]; return value, known })
	}
	return out
}
