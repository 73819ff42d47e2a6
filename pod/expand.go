package pod

import "strings"

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
