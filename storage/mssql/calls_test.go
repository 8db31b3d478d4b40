package mssql_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// call is a place in storage/rowlock that runs a statement.
type call struct {
	at     string
	method string   // change, one or each
	names  []string // of the arguments, sorted; nil where they cannot be told
	opaque string   // why they cannot be told
	shared bool     // the same arguments are for several statements, each of which may take fewer
	dest   int      // how many values are scanned; -1 where that cannot be told
}

// runs are the methods of session that run a statement.
var runs = []string{"change", "one", "each"}

// steps are the functions that make a step of session.together, with the method that it is run
// by where it goes alone.
var steps = map[string]string{"reading": "each", "changing": "change", "matching": "change"}

// runBy is the method that runs the statement of a call, empty where it runs none.
func runBy(c *ast.CallExpr) string {
	name := called(c)
	if slices.Contains(runs, name) {
		return name
	}
	return steps[name]
}

// isRun tells one of the methods from others of the name; together and oneByOne run the
// statements of steps, which are told where a step is made.
func isRun(fn *ast.FuncDecl) bool {
	if fn.Recv == nil || !slices.Contains(append([]string{"together", "oneByOne"}, runs...), fn.Name.Name) {
		return false
	}
	star, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	id, ok := star.X.(*ast.Ident)
	return ok && id.Name == "session"
}

// goSource is package rowlock, read as text: nothing of it runs. A statement is a constant
// of type statement; it is run by session.change, one or each, and its arguments are made by
// a("name", value). Where a call does not spell them itself they are followed to the variable
// or function that makes them, within the package.
type goSource struct {
	t         *testing.T
	fset      *token.FileSet
	constants map[string]string // name of the constant -> file of the statement
	functions []*ast.FuncDecl
	files     []*ast.File
	calls     map[string][]call // by statement
}

func readRowlock(t *testing.T) *goSource {
	t.Helper()
	g := &goSource{
		t: t, fset: token.NewFileSet(),
		constants: map[string]string{}, calls: map[string][]call{},
	}
	files, err := filepath.Glob("../rowlock/*.go")
	require.NoError(t, err)
	var parsed []*ast.File
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(g.fset, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		parsed = append(parsed, f)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				g.declare(d)
			case *ast.FuncDecl:
				g.functions = append(g.functions, d)
			}
		}
	}
	require.NotEmpty(t, g.constants, "no constants of type statement")
	g.files = parsed
	for _, f := range parsed {
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil && !isRun(d) && wraps(d) == nil {
				g.read(d)
			}
		}
	}
	return g
}

// declare notes the constants of type statement.
func (g *goSource) declare(d *ast.GenDecl) {
	if d.Tok != token.CONST {
		return
	}
	for _, s := range d.Specs {
		v, ok := s.(*ast.ValueSpec)
		if !ok {
			continue
		}
		if typ, ok := v.Type.(*ast.Ident); !ok || typ.Name != "statement" {
			continue
		}
		for i, name := range v.Names {
			lit, ok := v.Values[i].(*ast.BasicLit)
			require.True(g.t, ok, "%s is no literal", name.Name)
			text, err := strconv.Unquote(lit.Value)
			require.NoError(g.t, err)
			g.constants[name.Name] = text
		}
	}
}

// read notes the calls of one function.
func (g *goSource) read(fn *ast.FuncDecl) {
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := called(c)
		if slices.Contains(runs, name) && len(c.Args) >= 2 {
			list := g.statements(fn, c.Args[1])
			for _, statement := range list {
				one := g.call(fn, name, c)
				one.shared = len(list) > 1
				g.calls[statement] = append(g.calls[statement], one)
			}
		} else if steps[name] != "" && len(c.Args) >= 2 {
			list := g.statements(fn, c.Args[0])
			for _, statement := range list {
				one := g.step(fn, name, c)
				one.shared = len(list) > 1
				g.calls[statement] = append(g.calls[statement], one)
			}
		} else if w := g.wrapper(name); w != nil && w.statement < len(c.Args) {
			for _, statement := range g.statements(fn, c.Args[w.statement]) {
				out := call{at: g.fset.Position(c.Pos()).String(), method: w.method, names: []string{}, dest: -1}
				for _, e := range c.Args[min(w.args, len(c.Args)):] {
					g.collect(fn, e, &out, map[string]bool{})
					if !w.variadic {
						break
					}
				}
				slices.Sort(out.names)
				out.names = slices.Compact(out.names)
				g.calls[statement] = append(g.calls[statement], out)
			}
		}
		return true
	})
}

// wrapper is a function that runs a statement which it is given, with the arguments that it is
// given.
type wrapper struct {
	method          string
	statement, args int // which of its parameters they are
	variadic        bool
}

func (g *goSource) wrapper(name string) *wrapper {
	for _, fn := range g.functions {
		if fn.Name.Name == name && fn.Body != nil && !isRun(fn) {
			if w := wraps(fn); w != nil {
				return w
			}
		}
	}
	return nil
}

func wraps(fn *ast.FuncDecl) *wrapper {
	w := &wrapper{statement: -1, args: -1}
	i := 0
	for _, field := range fn.Type.Params.List {
		for range max(1, len(field.Names)) {
			switch typ := field.Type.(type) {
			case *ast.Ident:
				switch typ.Name {
				case "statement":
					w.statement = i
				case "Arg":
					w.args = i
				}
			case *ast.Ellipsis:
				if id, ok := typ.Elt.(*ast.Ident); ok && id.Name == "Arg" {
					w.args, w.variadic = i, true
				}
			case *ast.ArrayType:
				if id, ok := typ.Elt.(*ast.Ident); ok && id.Name == "Arg" {
					w.args = i
				}
			}
			i++
		}
	}
	if w.statement < 0 || w.args < 0 {
		return nil
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok && runBy(c) != "" {
			w.method = runBy(c)
		}
		return true
	})
	if w.method == "" {
		return nil
	}
	return w
}

// statements are what an expression of type statement may be: a constant, a variable to which
// constants are assigned in the same function, or a field that literals of the package fill.
func (g *goSource) statements(fn *ast.FuncDecl, e ast.Expr) []string {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		return g.field(fn, sel.Sel.Name)
	}
	id, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	if s, ok := g.constants[id.Name]; ok {
		return []string{s}
	}
	var found []string
	for _, value := range assigned(fn, id.Name) {
		ast.Inspect(value, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if s, ok := g.constants[id.Name]; ok {
					found = append(found, s)
				}
			}
			return true
		})
	}
	if len(found) == 0 {
		found = g.passed(fn, id.Name)
	}
	return found
}

// field gives the constants that literals put into a field of type statement, by its name or by
// its place: those of the function where the type is one of its own, else all of the package.
func (g *goSource) field(fn *ast.FuncDecl, name string) []string {
	var found []string
	add := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok && g.constants[id.Name] != "" && !slices.Contains(found, g.constants[id.Name]) {
			found = append(found, g.constants[id.Name])
		}
	}
	places := map[[2]int]bool{} // which of how many fields
	look := func(in ast.Node) {
		ast.Inspect(in, func(n ast.Node) bool {
			if s, ok := n.(*ast.StructType); ok {
				i, at := 0, -1
				for _, field := range s.Fields.List {
					typ, _ := field.Type.(*ast.Ident)
					for _, id := range field.Names {
						if id.Name == name && typ != nil && typ.Name == "statement" {
							at = i
						}
						i++
					}
				}
				if at >= 0 {
					places[[2]int{at, i}] = true
				}
			}
			return true
		})
	}
	var in []ast.Node
	if look(fn.Body); len(places) > 0 {
		in = append(in, fn.Body)
	} else {
		for _, f := range g.files {
			look(f)
			in = append(in, f)
		}
	}
	for _, f := range in {
		ast.Inspect(f, func(n ast.Node) bool {
			if assign, ok := n.(*ast.AssignStmt); ok && len(assign.Lhs) == len(assign.Rhs) {
				for i, left := range assign.Lhs {
					if sel, ok := left.(*ast.SelectorExpr); ok && sel.Sel.Name == name {
						add(assign.Rhs[i])
					}
				}
			}
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			for i, e := range lit.Elts {
				if kv, keyed := e.(*ast.KeyValueExpr); keyed {
					if id, ok := kv.Key.(*ast.Ident); ok && id.Name == name {
						add(kv.Value)
					}
				} else if places[[2]int{i, len(lit.Elts)}] {
					add(e)
				}
			}
			return true
		})
	}
	return found
}

// passed are the constants that the callers of fn give for one of its parameters.
func (g *goSource) passed(fn *ast.FuncDecl, parameter string) []string {
	at := parameterAt(fn, parameter)
	if at < 0 {
		return nil
	}
	var found []string
	for _, other := range g.functions {
		if other.Body == nil {
			continue
		}
		ast.Inspect(other.Body, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok || called(c) != fn.Name.Name || len(c.Args) <= at {
				return true
			}
			if id, ok := c.Args[at].(*ast.Ident); ok {
				if s, ok := g.constants[id.Name]; ok {
					found = append(found, s)
				}
			}
			return true
		})
	}
	return found
}

// called is the name of the function or method of a call.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	default:
		return ""
	}
}

// assigned are the values that a function gives to a variable.
func assigned(fn *ast.FuncDecl, name string) []ast.Expr {
	var values []ast.Expr
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && id.Name == name {
					values = append(values, n.Rhs[min(i, len(n.Rhs)-1)])
				}
			}
		case *ast.ValueSpec:
			for i, id := range n.Names {
				if id.Name == name && i < len(n.Values) {
					values = append(values, n.Values[i])
				}
			}
		}
		return true
	})
	return values
}

func (g *goSource) call(fn *ast.FuncDecl, method string, c *ast.CallExpr) call {
	out := call{at: g.fset.Position(c.Pos()).String(), method: method, names: []string{}, dest: -1}
	given := c.Args[2:]
	switch method {
	case "one":
		given = c.Args[2:3]
		out.dest = len(c.Args) - 3
		if c.Ellipsis.IsValid() {
			out.dest = -1
		}
	case "each":
		given = c.Args[2:3]
		if len(c.Args) > 3 {
			out.dest = scanned(c.Args[3])
		}
	}
	for _, e := range given {
		g.collect(fn, e, &out, map[string]bool{})
	}
	slices.Sort(out.names)
	out.names = slices.Compact(out.names)
	return out
}

// step is a call that a step stands for: the statement comes first, then the arguments and what
// reads the rows, or how many rows it is to match and the arguments.
func (g *goSource) step(fn *ast.FuncDecl, name string, c *ast.CallExpr) call {
	out := call{at: g.fset.Position(c.Pos()).String(), method: steps[name], names: []string{}, dest: -1}
	given := c.Args[2:]
	if name == "reading" {
		given = c.Args[1:2]
		out.dest = scanned(c.Args[2])
	}
	for _, e := range given {
		g.collect(fn, e, &out, map[string]bool{})
	}
	slices.Sort(out.names)
	out.names = slices.Compact(out.names)
	return out
}

// scanned is the number of destinations of the one Scan in a function literal.
func scanned(fn ast.Expr) int {
	n := -1
	ast.Inspect(fn, func(node ast.Node) bool {
		if c, ok := node.(*ast.CallExpr); ok && called(c) == "Scan" {
			n = len(c.Args)
			if c.Ellipsis.IsValid() {
				n = -1
			}
		}
		return true
	})
	return n
}

// collect adds the names of the arguments that an expression makes.
func (g *goSource) collect(fn *ast.FuncDecl, e ast.Expr, out *call, seen map[string]bool) {
	switch e := e.(type) {
	case *ast.CallExpr:
		name := called(e)
		switch {
		case name == "a":
			g.name(e.Args[0], out)
		case name == "args" || name == "append" || name == "Concat":
			for _, x := range e.Args {
				g.collect(fn, x, out, seen)
			}
		case g.maker(name) != nil:
			g.made(g.maker(name), e.Args, out)
		default:
			out.opaque = "a call of " + name
		}
	case *ast.Ident:
		if e.Name == "nil" || seen[fn.Name.Name+" "+e.Name] {
			return
		}
		seen[fn.Name.Name+" "+e.Name] = true
		values := assigned(fn, e.Name)
		for _, v := range values {
			g.collect(fn, v, out, seen)
		}
		if len(values) == 0 && !g.fromCallers(fn, e.Name, out, seen) {
			out.opaque = e.Name + " comes from outside of " + fn.Name.Name
		}
	case *ast.CompositeLit:
		for _, x := range e.Elts {
			g.collect(fn, x, out, seen)
		}
	default:
		out.opaque = "an expression that is not followed"
	}
}

// name notes the literal name of an argument.
func (g *goSource) name(e ast.Expr, out *call) {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		out.opaque = "a name that is no literal"
		return
	}
	text, err := strconv.Unquote(lit.Value)
	require.NoError(g.t, err)
	out.names = append(out.names, text)
}

// maker is the function of a name that gives arguments of statements.
func (g *goSource) maker(name string) *ast.FuncDecl {
	for _, fn := range g.functions {
		if fn.Name.Name == name && makesArgs(fn) {
			return fn
		}
	}
	return nil
}

func makesArgs(fn *ast.FuncDecl) bool {
	if fn == nil || fn.Type.Results == nil || fn.Body == nil {
		return false
	}
	for _, r := range fn.Type.Results.List {
		typ := r.Type
		if array, ok := typ.(*ast.ArrayType); ok {
			typ = array.Elt
		}
		if id, ok := typ.(*ast.Ident); ok && id.Name == "Arg" {
			return true
		}
	}
	return false
}

// made adds the names that a function makes when it is called with these values: the name
// itself may be one of them.
func (g *goSource) made(fn *ast.FuncDecl, values []ast.Expr, out *call) {
	value := func(e ast.Expr) ast.Expr {
		if id, ok := e.(*ast.Ident); ok {
			if at := parameterAt(fn, id.Name); at >= 0 && at < len(values) {
				return values[at]
			}
		}
		return e
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if name := called(c); name == "a" {
			g.name(value(c.Args[0]), out)
		} else if name != fn.Name.Name && g.maker(name) != nil {
			passed := make([]ast.Expr, len(c.Args))
			for i, x := range c.Args {
				passed[i] = value(x)
			}
			g.made(g.maker(name), passed, out)
		}
		return true
	})
}

// parameterAt is the place of a parameter of a function, or -1.
func parameterAt(fn *ast.FuncDecl, parameter string) int {
	i := 0
	for _, field := range fn.Type.Params.List {
		for _, name := range field.Names {
			if name.Name == parameter {
				return i
			}
			i++
		}
	}
	return -1
}

// fromCallers follows a parameter to those who call the function. Where a function hands it on
// as a value, everything that it makes may be meant.
func (g *goSource) fromCallers(fn *ast.FuncDecl, parameter string, out *call, seen map[string]bool) bool {
	at := parameterAt(fn, parameter)
	if at < 0 {
		return false
	}
	found := false
	for _, other := range g.functions {
		if other.Body == nil || other == fn {
			continue
		}
		mentioned, direct := false, false
		ast.Inspect(other.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if called(n) == fn.Name.Name && at < len(n.Args) {
					direct, found = true, true
					g.collect(other, n.Args[at], out, seen)
				}
			case *ast.SelectorExpr:
				mentioned = mentioned || n.Sel.Name == fn.Name.Name
			}
			return true
		})
		if mentioned && !direct {
			found = true
			ast.Inspect(other.Body, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok && (called(c) == "a" || g.maker(called(c)) != nil) {
					g.collect(other, c, out, seen)
				}
				return true
			})
		}
	}
	return found
}
