package config

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// expand replaces the references $(NAME) in text with the results of lookup. A reference that is unknown or not closed
// stays as it is. $$ stands for one $, so $$(NAME) is the text "$(NAME)".
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

// StaticCommand returns a probe's command with its references to variables expanded, if the pod itself has their
// values.
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
