"use strict";

const clients = {{ clients|safe }};

// Each provider has a client of its own; Swagger UI knows one for all.
const ownClients = () => ({
  wrapComponents: {
    oauth2: (Original, { React }) => (props) => {
      const { name, authSelectors } = props;
      const getConfigs = () => ({ ...authSelectors.getConfigs(), clientId: clients[name] });
      return React.createElement(Original, {
        ...props,
        authSelectors: { ...authSelectors, getConfigs },
      });
    },
  },
});

const ui = SwaggerUIBundle({
  ...{{ settings|safe }},
  url: "{{ schema_url|escapejs }}",
  dom_id: "#swagger-ui",
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [ownClients],
  layout: "BaseLayout",
  oauth2RedirectUrl: new URL("{{ redirect|escapejs }}", window.location).href,
});
ui.initOAuth({ usePkceWithAuthorizationCodeGrant: true, scopes: {{ scopes|safe }} });
