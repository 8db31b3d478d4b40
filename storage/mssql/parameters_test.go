package mssql

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParameters_HaveOneTypeEach reads package rowlock, where an argument is made by
// a("name", value): its Go type has to be one that has a declared type here, which the drivers of
// other engines do not ask for, and a name has the same type wherever it is used, so that a
// statement has one plan.
func TestParameters_HaveOneTypeEach(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	paths, err := filepath.Glob("../rowlock/*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	_, err = config.Check("github.com/queuebox/queuebox/storage/rowlock", fset, files, info)
	require.NoError(t, err)

	declared := map[string][]string{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			if fn, ok := call.Fun.(*ast.Ident); !ok || fn.Name != "a" {
				return true
			}
			at := fset.Position(call.Pos()).String()
			literal, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				// named hands a list on, under a name that its caller gives.
				require.Contains(t, at, "json.go", "the name is not spelled")
				return true
			}
			name, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			typ := declaredBy(info, call.Args[1])
			require.NotEmpty(t, typ, "%s: @%s has no declared type: %s", at, name, info.Types[call.Args[1]].Type)
			if !slices.Contains(declared[name], typ) {
				declared[name] = append(declared[name], typ)
			}
			return true
		})
	}
	require.Greater(t, len(declared), 30)
	several := map[string][]string{}
	for name, all := range declared {
		if len(all) > 1 {
			slices.Sort(all)
			several[name] = all
		}
	}
	require.Equal(t, ambiguous, several)
	require.Equal(t, []string{"int"}, declared["queue_id"])
	require.Equal(t, []string{"datetime2(6)"}, declared["now"])
}

// ambiguous are the names that mean different things in different statements.
var ambiguous = map[string][]string{
	"after": {"bigint", "int", "varbinary(255)"}, // a message or a key, a queue, the name of a queue
	"from":  {"bigint", "datetime2(6)"},          // a row of incoming or marked, the end of a retention
}

// declaredBy tells how a value is declared, empty where declare would refuse it.
func declaredBy(info *types.Info, e ast.Expr) string {
	v := values{}
	if call, ok := e.(*ast.CallExpr); ok {
		if method, ok := call.Fun.(*ast.SelectorExpr); ok && isValues(info.Types[method.X].Type) {
			made := map[string]any{
				"Time": v.Time(fakeNow), "Token": v.Token([16]byte{1}), "Bytes": v.Bytes(nil), "Text": v.Text("x"),
				"Name": v.Name("x"), "List": v.List(nil),
			}[method.Sel.Name]
			if got, ok := made.(typed); ok {
				return got.declared
			}
			return ""
		}
	}
	switch typ := info.Types[e].Type; typ.String() {
	case "database/sql.NullInt64":
		return "bigint"
	case "database/sql.NullInt32":
		return "int"
	case "[]byte":
		return "varbinary(max)"
	default:
		basic, ok := typ.Underlying().(*types.Basic)
		if !ok {
			return ""
		}
		return map[types.BasicKind]string{
			types.Bool: "bit", types.UntypedBool: "bit", types.Int: "bigint", types.UntypedInt: "bigint", types.Int64: "bigint", types.Int32: "int",
			types.Int16: "smallint", types.Int8: "smallint", types.Uint8: "tinyint", types.Float64: "float",
			types.String: "nvarchar(2000)", types.UntypedString: "nvarchar(2000)",
		}[basic.Kind()]
	}
}

func isValues(t types.Type) bool {
	return t != nil && strings.HasSuffix(t.String(), "rowlock.Values")
}
